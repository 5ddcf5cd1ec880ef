-- KEYS messages | ARGV spans limit size
return (read_spans(KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])))
