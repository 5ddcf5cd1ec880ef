-- Counts what a run has spent under one lease, as far as it is more than what is known of it.
-- KEYS day lease | ARGV ttl most tokens milliseconds billionths
-- Gives the amounts of the day; no amount gets larger than `most`.
local FIELDS = {'tokens', 'milliseconds', 'billionths'}
local sums = redis.call('HMGET', KEYS[1], unpack(FIELDS))
local known = redis.call('HMGET', KEYS[2], unpack(FIELDS))
local day, lease, grown = {}, {}, false
for i, field in ipairs(FIELDS) do
  local before, given = tonumber(known[i] or 0), tonumber(ARGV[i + 2])
  local more = math.max(0, given - before)
  sums[i] = math.min(tonumber(ARGV[2]), tonumber(sums[i] or 0) + more)
  grown = grown or more > 0
  day[2 * i - 1], day[2 * i] = field, digits(sums[i])
  lease[2 * i - 1], lease[2 * i] = field, digits(before + more)
end
-- nothing above this line writes

if grown then
  redis.call('HSET', KEYS[1], unpack(day))
  redis.call('HSET', KEYS[2], unpack(lease))
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
end
return sums
