-- In front of every script. Time is the server's, in milliseconds; values are opaque strings, never parsed here.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

-- Fails before the first write when a part has a foreign type, or a part of the conversation is gone.
local function check_parts(keys, count)
  redis.call('HLEN', keys.answers)
  redis.call('ZCARD', keys.runs)
  redis.call('XLEN', keys.log)
  if redis.call('LLEN', keys.messages) ~= count then
    error('PBDAMAGED the messages do not fit the state')
  end
end

-- The parts of a conversation expire together; an empty ttl keeps them for ever.
local function keep(keys, ttl)
  for _, key in ipairs({keys.state, keys.messages, keys.answers, keys.runs}) do
    if ttl == '' then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, ttl) end
  end
end

-- The runs whose logs exist, by the time when each expires: deleting a conversation needs their names.
local function keep_log(keys, run, ttl)
  redis.call('PEXPIRE', keys.log, ttl)
  redis.call('ZADD', keys.runs, digits(now + ttl), run)
  redis.call('ZREMRANGEBYSCORE', keys.runs, '-inf', digits(now))
end
