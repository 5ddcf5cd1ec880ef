-- KEYS due | ARGV limit lease
-- Conversations that somebody has to look after; for `lease` they are the caller's. Gives their new score, and them.
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', moment(0), 'LIMIT', 0, ARGV[1])
local score = moment(ARGV[2])
for _, member in ipairs(members) do redis.call('ZADD', KEYS[1], score, member) end
return {score, members}
