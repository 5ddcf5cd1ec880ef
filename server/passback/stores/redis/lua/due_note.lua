-- Where the index has a server of its own: look after a conversation some time from now; `NX`: unless it is known.
-- KEYS due | ARGV after member [NX]
if ARGV[3] then
  redis.call('ZADD', KEYS[1], ARGV[3], moment(ARGV[1]), ARGV[2])
else
  redis.call('ZADD', KEYS[1], moment(ARGV[1]), ARGV[2])
end
return 1
