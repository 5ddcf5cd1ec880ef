-- Replace the amounts of an owner's run under one lease by newer ones.
-- KEYS day lease | ARGV ttl most seq tokens milliseconds billionths
-- Return the amounts of the day; none is more than `most`, and one that is as much does not fall.
local most, seq = tonumber(ARGV[2]), tonumber(ARGV[3])
local sums = redis.call('HMGET', KEYS[1], '1', '2', '3')
local known = redis.call('HMGET', KEYS[2], '1', '2', '3', 'seq')
for i = 1, 3 do sums[i], known[i] = tonumber(sums[i] or 0), tonumber(known[i] or 0) end
if seq <= tonumber(known[4] or 0) then return sums end
redis.call('HSET', KEYS[2], 'seq', ARGV[3], '1', ARGV[4], '2', ARGV[5], '3', ARGV[6])
for i = 1, 3 do
  local more = ARGV[i + 3] - known[i]  -- the sum of all three may be too large to be exact
  if sums[i] < most then sums[i] = math.max(0, math.min(most, sums[i] + more)) end
end
redis.call('HSET', KEYS[1], '1', digits(sums[1]), '2', digits(sums[2]), '3', digits(sums[3]))
for i = 1, 2 do redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
return sums
