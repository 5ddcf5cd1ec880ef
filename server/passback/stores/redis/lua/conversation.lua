-- The keys of a conversation, which all bear its tag; `due` and the owner's `list` are there where
-- one server has all conversations.
local keys = {
  state = KEYS[1], messages = KEYS[2], receipts = KEYS[3], runs = KEYS[4], queue = KEYS[5],
  log = KEYS[6], due = KEYS[7], list = KEYS[8],
}

-- Fail before the first write when a key has a foreign type, or a part of the conversation is
-- gone; without `message_count` the conversation does not exist yet.
local function check_parts(message_count)
  redis.call('XLEN', keys.log)
  if keys.due then redis.call('ZCARD', keys.due) end
  if keys.list then redis.call('ZCARD', keys.list) end
  if not message_count then return end
  redis.call('HLEN', keys.receipts)
  redis.call('ZCARD', keys.runs)
  redis.call('LLEN', keys.queue)
  if redis.call('LLEN', keys.messages) ~= message_count then
    error('PBDAMAGED the messages do not fit the state')
  end
end

-- Return the bytes of the messages from `history_start` on, of which the first `kept` are stored
-- and the others are ARGV from `first` to `last`. `known`: the bytes of those that are stored;
-- without it they are counted anew.
local function count_history_bytes(known, history_start, kept, first, last)
  local total, SLICE = tonumber(known or 0), 10
  if not known then
    for start = history_start, kept - 1, SLICE do
      local slice = redis.call('LRANGE', keys.messages, start, math.min(start + SLICE, kept) - 1)
      for _, message in ipairs(slice) do total = total + #message end
    end
    first = first + math.max(0, history_start - kept)
  end
  for i = first, last do total = total + #ARGV[i] end
  return total
end

-- Return whether an entry of the queue is a run's: it is the run's id, NUL, and a record, which
-- has no NUL.
local function is_entry_of(entry, run_id)
  return string.sub(entry, 1, #run_id + 1) == run_id .. '\0'
end

local function has_queue()
  return redis.call('LLEN', keys.queue) > 0
end

-- Let the parts of a conversation expire together, in `ttl` milliseconds; an empty time keeps them
-- for ever.
local function set_ttl(ttl)
  if ttl == '' and redis.call('PTTL', keys.state) == -1 then return end
  for _, key in ipairs({keys.state, keys.messages, keys.receipts, keys.runs, keys.queue}) do
    if ttl == '' then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, ttl) end
  end
end

-- Let a log expire, and note its run by the time when it does: deleting a conversation needs the
-- names of its logs.
local function set_log_ttl(run_id, ttl)
  redis.call('PEXPIRE', keys.log, ttl)
  redis.call('ZADD', keys.runs, digits(now + ttl), run_id)
  redis.call('ZREMRANGEBYSCORE', keys.runs, '-inf', digits(now))
end

-- Make the conversation due for recovery after some milliseconds; without `after`, never.
local function set_due(member, after)
  if not keys.due then return end
  if after then
    redis.call('ZADD', keys.due, time_in(after), member)
  else
    redis.call('ZREM', keys.due, member)
  end
end
