-- Make a conversation due some milliseconds from now, where the index has a server of its own;
-- `NX`: unless it is in the index.
-- KEYS due | ARGV after member [NX]
if ARGV[3] then
  redis.call('ZADD', KEYS[1], ARGV[3], time_in(ARGV[1]), ARGV[2])
else
  redis.call('ZADD', KEYS[1], time_in(ARGV[1]), ARGV[2])
end
return 1
