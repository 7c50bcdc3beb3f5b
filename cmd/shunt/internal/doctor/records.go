package doctor

import (
	"fmt"
	"strings"

	"github.com/shuntmq/shunt"
)

// lookRecords finds records of messages that are nowhere. They are read after the messages: what comes meanwhile is
// new in this look, and so is none that both looks have.
func (e *examination) lookRecords(c *channel, s *state, m *contents,
	add func(shunt.Severity, Kind, Finding, []string, bool, func(int) string)) {
	ids, ok1 := e.records("HSCAN", c.key("ids"))
	running, ok2 := e.records("HSCAN", c.key("running"))
	if !ok1 || !ok2 {
		return
	}
	var lost []string
	named := make(map[string]bool)
	for i := 0; i+1 < len(ids); i += 2 {
		if r := ids[i+1]; len(r) > 16 {
			named[r[:16]] = true
			if (r[16] == 'p' || r[16] == 'd') && !m.serials[r[:16]] {
				lost = append(lost, pair(ids[i], r))
			}
		}
	}
	if len(lost) > 0 {
		id, _ := unpair(lost[0])
		add(shunt.Warning, IDs, Finding{Key: c.key("ids"), Fix: Safe, Do: fmt.Sprintf("HDEL '%s' %q and so on",
			c.key("ids"), id)}, lost, true, func(n int) string {
			return fmt.Sprintf("%s taken by messages that are nowhere, such as %q", many(n, "ID is", "IDs are"), id)
		})
	}
	var marks []string
	for i := 0; i+1 < len(running); i += 2 {
		if !m.doing[running[i]] {
			marks = append(marks, pair("running", running[i], running[i+1]))
		}
	}
	for _, set := range []string{"cancelled", "waited"} {
		members, ok := e.records("SSCAN", c.key(set))
		if !ok {
			continue
		}
		for _, serial := range members {
			if !m.serials[serial] && !(set == "waited" && named[serial]) {
				marks = append(marks, pair(set, serial))
			}
		}
	}
	if len(marks) > 0 {
		add(shunt.Notice, Marks, Finding{Key: c.key("running"), Fix: Safe, Do: "shunt doctor --fix"}, marks, true,
			func(n int) string {
				return fmt.Sprintf("%s of messages that are nowhere", many(n, "mark or tombstone is",
					"marks and tombstones are"))
			})
	}
}

// pair and unpair make one text of several.
func pair(parts ...string) string {
	for i, p := range parts {
		parts[i] = fmt.Sprintf("%08x", len(p)) + p
	}
	return strings.Join(parts, "")
}

func unpair(text string) (first string, rest []string) {
	var all []string
	for len(text) >= 8 {
		var n int
		if _, err := fmt.Sscanf(text[:8], "%x", &n); err != nil || len(text) < 8+n {
			break
		}
		all, text = append(all, text[8:8+n]), text[8+n:]
	}
	if len(all) == 0 {
		return "", nil
	}
	return all[0], all[1:]
}

// records reads a hash or a set, up to its bound; ok is false where it has more.
func (e *examination) records(scan, key string) (all []string, ok bool) {
	for cursor := "0"; ; {
		page := e.one(scan, key, cursor, "COUNT", scanRecords)
		parts := page.values()
		if len(parts) != 2 {
			return nil, false
		}
		all = append(all, (reply{v: parts[1]}).strings()...)
		if cursor = (reply{v: parts[0]}).text(); cursor == "0" {
			return all, true
		}
		if len(all) > mostRecords {
			e.limit("channel %s: %s has more than %d records, which were not compared with messages", key, scan,
				mostRecords)
			return nil, false
		}
		e.rest(e.o.Pause)
	}
}
