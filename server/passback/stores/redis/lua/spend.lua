-- Replace the amounts of a run under one lease by newer ones.
-- KEYS day lease | ARGV ttl max_amount seq tokens milliseconds billionths
-- Return the amounts of the day; none is larger than `max_amount`, and one that is so large does
-- not fall.
local FIELDS = {'tokens', 'milliseconds', 'billionths'}
local max_amount, seq = tonumber(ARGV[2]), tonumber(ARGV[3])
local sums = redis.call('HMGET', KEYS[1], unpack(FIELDS))
local known = redis.call('HMGET', KEYS[2], 'seq', unpack(FIELDS))
local newer = seq > tonumber(known[1] or 0)
local day, lease = {}, {'seq', digits(seq)}
for i, field in ipairs(FIELDS) do
  local sum, given = tonumber(sums[i] or 0), tonumber(ARGV[i + 3])
  if newer and sum < max_amount then
    sum = math.min(max_amount, math.max(0, sum + given - tonumber(known[i + 1] or 0)))
  end
  sums[i] = sum
  day[#day + 1], day[#day + 2] = field, digits(sum)
  lease[#lease + 1], lease[#lease + 2] = field, digits(given)
end
-- nothing above this line writes

if newer then
  redis.call('HSET', KEYS[1], unpack(day))
  redis.call('HSET', KEYS[2], unpack(lease))
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
end
return sums
