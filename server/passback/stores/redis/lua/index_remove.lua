-- Remove conversations from an index of their owner, unless they were noted again since they were
-- read, or less than `age` microseconds ago: those may be about to be written.
-- KEYS index | ARGV age (member score)*
local newest = microseconds() - tonumber(ARGV[1])
for i = 2, #ARGV, 2 do
  local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]))
  if score and score == tonumber(ARGV[i + 1]) and score <= newest then
    redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return 1
