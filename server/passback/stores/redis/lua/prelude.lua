-- Stands behind the constants and in front of every script. Time is the server's, in milliseconds;
-- records are opaque strings, never parsed here.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function digits(number) return string.format('%d', number) end
local function microseconds() return digits(time[1] * 1000000 + time[2]) end

-- Return a score of the index of due conversations: no two scripts give the same one.
local function due_score(at) return string.format('%.3f', at + time[2] % 1000 / 1000) end

-- Put a conversation into an index of its owner. Where conversations expire, they also leave it.
local function add_to_index(index, member)
  redis.call('ZADD', index, microseconds(), member)
  if not INDEX_TTL then return redis.call('PERSIST', index) end
  redis.call('ZREMRANGEBYSCORE', index, '-inf', digits(microseconds() - INDEX_TTL * 1000))
  redis.call('PEXPIRE', index, INDEX_TTL)
end
