-- Claim an owed call for one client, until some milliseconds from now; 0 gives the claim back.
-- KEYS state | ARGV nonce expected call claimant milliseconds
-- Return whether the claim is the caller's, its end, and the milliseconds until then; false when
-- the request does not fit.
local nonce, expected, call, claimant, milliseconds = unpack(ARGV, 1, 5)
local version, known_nonce, running, claims = unpack(
  redis.call('HMGET', KEYS[1], 'version', 'nonce', 'running', 'claims'))
if not version then return false end
local known, kept = false, {}
for known_call, known_claimant, expires in string.gmatch(claims or '', '(%S+) (%S+) (%d+)') do
  if tonumber(expires) > now then
    if known_call == call then
      known = {known_claimant, tonumber(expires)}
    else
      kept[#kept + 1] = known_call .. ' ' .. known_claimant .. ' ' .. expires
    end
  end
end
if known_nonce == nonce then
  local expires = known and known[2] or now
  return {1, expires, expires - now}
end
if version ~= expected or running == '1' then return false end
if known and known[1] ~= claimant then return {0, known[2], known[2] - now} end
-- nothing above this line writes

local expires = now + milliseconds
if expires > now then kept[#kept + 1] = call .. ' ' .. claimant .. ' ' .. digits(expires) end
redis.call('HSET', KEYS[1],
  'version', digits(version + 1), 'nonce', nonce, 'claims', table.concat(kept, ' '))
return {1, expires, expires - now}
