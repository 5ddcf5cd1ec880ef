-- Set when members that were taken under `score` are due again, unless another
-- write has done so meanwhile.
-- KEYS due | ARGV score (member wait)*
-- `wait`: milliseconds; -1 for never.
for i = 2, #ARGV, 2 do
  local member, wait = ARGV[i], ARGV[i + 1]
  if tonumber(redis.call('ZSCORE', KEYS[1], member) or 0) == tonumber(ARGV[1]) then
    if wait == '-1' then
      redis.call('ZREM', KEYS[1], member)
    else
      redis.call('ZADD', KEYS[1], time_in(wait), member)
    end
  end
end
return 1
