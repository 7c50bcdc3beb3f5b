package store

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// AuditKey is a stream of what was done by hand, for all channels.
const AuditKey = "shunt.audit"

// AddAudit adds an entry of fields and values to the audit, which keeps about so many.
func AddAudit(c *link.Call, most int, fields ...any) {
	c.Add("XADD", append([]any{AuditKey, "MAXLEN", "~", most, "*"}, fields...)...)
}

// AddAuditLog asks for the latest entries, or those before one; EachAudit reads them.
func AddAuditLog(c *link.Call, before string, limit int) {
	from := "+"
	if before != "" {
		from, limit = before, limit+1 // that one is given, too
	}
	c.Add("XREVRANGE", AuditKey, from, "-", "COUNT", limit)
}

// IsAuditID says whether a text is the id of an entry.
func IsAuditID(text string) bool {
	ms, n, cut := strings.Cut(text, "-")
	_, err1 := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(n, 10, 64)
	return cut && err1 == nil && err2 == nil
}

// EachAudit gives the entries that came, the latest first.
func EachAudit(rep link.Reply, before string, give func(id string, at time.Time, field func(string) string)) error {
	all, err := redis.Values(rep.Any(), rep.Err)
	if err != nil {
		return err
	}
	for _, v := range all {
		entry, err := redis.Values(v, nil)
		if err != nil || len(entry) < 2 {
			return cmp.Or(err, errRecord)
		}
		id, _ := redis.String(entry[0], nil)
		fields, err := redis.StringMap(entry[1], nil)
		if err != nil {
			return err
		}
		if id == before {
			continue
		}
		ms, _ := strconv.ParseInt(strings.SplitN(id, "-", 2)[0], 10, 64)
		give(id, time.UnixMilli(ms), func(name string) string { return fields[name] })
	}
	return nil
}
