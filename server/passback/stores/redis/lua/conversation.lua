-- The keys of a conversation, which all bear its tag; `due` is there where one server has all conversations.
local keys = {
  state = KEYS[1], messages = KEYS[2], receipts = KEYS[3], runs = KEYS[4], queue = KEYS[5], log = KEYS[6], due = KEYS[7],
}

-- Fails before the first write when what is to be written has a foreign type, or a part of the conversation is gone;
-- without `count` the conversation does not exist yet.
local function check_parts(count)
  redis.call('XLEN', keys.log)
  if keys.due then redis.call('ZCARD', keys.due) end
  if not count then return end
  redis.call('HLEN', keys.receipts)
  redis.call('ZCARD', keys.runs)
  redis.call('LLEN', keys.queue)
  if redis.call('LLEN', keys.messages) ~= count then
    error('PBDAMAGED the messages do not fit the state')
  end
end

-- Bytes of the messages from the boundary on, of which the first `kept` are stored and the others are ARGV from `first` to
-- `last`. `known`: what is already counted of those that are stored; without it they are counted anew.
local function history_bytes(known, boundary, kept, first, last)
  local total, SLICE = tonumber(known or 0), 10
  if not known then
    for start = boundary, kept - 1, SLICE do
      local slice = redis.call('LRANGE', keys.messages, start, math.min(start + SLICE, kept) - 1)
      for _, message in ipairs(slice) do total = total + #message end
    end
    first = first + math.max(0, boundary - kept)
  end
  for i = first, last do total = total + #ARGV[i] end
  return total
end

-- Whether an entry of the queue is that of a run: it is the run, NUL, and a record, which has none.
local function is_of(entry, run)
  return string.sub(entry, 1, #run + 1) == run .. '\0'
end

local function posts_wait()
  return redis.call('LLEN', keys.queue) > 0
end

-- The parts of a conversation expire together, in so many milliseconds; an empty time keeps them for ever.
local function keep(ttl)
  if ttl == '' and redis.call('PTTL', keys.state) == -1 then return end
  for _, key in ipairs({keys.state, keys.messages, keys.receipts, keys.runs, keys.queue}) do
    if ttl == '' then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, ttl) end
  end
end

-- The runs whose logs exist, by the time when each expires: deleting a conversation needs their names.
local function keep_log(run, ttl)
  redis.call('PEXPIRE', keys.log, ttl)
  redis.call('ZADD', keys.runs, digits(now + ttl), run)
  redis.call('ZREMRANGEBYSCORE', keys.runs, '-inf', digits(now))
end

-- When somebody has to look after the conversation; without `after`, in milliseconds, never.
local function look(member, after)
  if not keys.due then return end
  if after then
    redis.call('ZADD', keys.due, moment(after), member)
  else
    redis.call('ZREM', keys.due, member)
  end
end
