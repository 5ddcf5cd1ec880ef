-- Settle when conversations that were taken under `score` are due again, unless a write has done so
-- meanwhile; then take some that are due: they are the caller's for so many milliseconds.
-- KEYS due | ARGV limit milliseconds score (member at)*: `at` is a time, or empty for never
-- Return their new score, and the members.
for i = 4, #ARGV, 2 do
  local member, at, score = ARGV[i], ARGV[i + 1], redis.call('ZSCORE', KEYS[1], ARGV[i])
  local is_taken = score and tonumber(score) == tonumber(ARGV[3])
  if is_taken and at == '' then redis.call('ZREM', KEYS[1], member) end
  if is_taken and at ~= '' then redis.call('ZADD', KEYS[1], due_score(at), member) end
end
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', due_score(now), 'LIMIT', 0, ARGV[1])
local score = due_score(now + ARGV[2])
for _, member in ipairs(members) do redis.call('ZADD', KEYS[1], score, member) end
return {score, members}
