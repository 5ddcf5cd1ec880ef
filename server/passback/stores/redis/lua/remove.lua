-- Remove conversations from an index of their owner, unless they were noted again since they were
-- read, or less than `age` microseconds ago: those may be about to be written.
-- KEYS index | ARGV age (member score)*
for i = 2, #ARGV, 2 do
  local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or math.huge)
  if score == tonumber(ARGV[i + 1]) and score <= microseconds() - ARGV[1] then
    redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
