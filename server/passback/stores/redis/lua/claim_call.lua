-- One client's claim of an owed call, until some milliseconds from now; 0 gives it back.
-- KEYS state | ARGV nonce expected call claimant milliseconds
-- Gives whether the claim is that of the caller, its end, and the milliseconds until then; false when it does not fit.
local nonce, expected, call, claimant, length = unpack(ARGV, 1, 5)
local version, seen, running, claims = unpack(redis.call('HMGET', KEYS[1], 'version', 'nonce', 'running', 'claims'))
if not version then return false end
local known, kept = false, {}
for id, whose, till in string.gmatch(claims or '', '(%S+) (%S+) (%d+)') do
  if tonumber(till) > now then
    if id == call then known = {whose, tonumber(till)} else kept[#kept + 1] = id .. ' ' .. whose .. ' ' .. till end
  end
end
if seen == nonce then
  local till = known and known[2] or now
  return {1, till, till - now}
end
if version ~= expected or running == '1' then return false end
if known and known[1] ~= claimant then return {0, known[2], known[2] - now} end
-- nothing above this line writes

local till = now + length
if till > now then kept[#kept + 1] = call .. ' ' .. claimant .. ' ' .. digits(till) end
redis.call('HSET', KEYS[1], 'version', digits(version + 1), 'nonce', nonce, 'claims', table.concat(kept, ' '))
return {1, till, till - now}
