-- Record that a remote reader follows a run for some time; no effect once the run has ended.
-- KEYS state | ARGV run_id milliseconds
local running, run_id = unpack(redis.call('HMGET', KEYS[1], 'running', 'run_id'))
if running == '1' and run_id == ARGV[1] then
  redis.call('HSET', KEYS[1], 'followed_until', digits(now + ARGV[2]))
end
return 1
