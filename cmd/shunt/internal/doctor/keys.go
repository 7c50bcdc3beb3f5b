package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	channelsKey = "shunt.channels"
	auditKey    = "shunt.audit"
	scanCount   = 500
	mostLists   = 20_000 // names of lists of workers and leases that are kept
	mostOfAll   = 20_000 // channels
	manyEmpty   = 100    // channels without any key
)

// types are the keys of a channel, by state, and their types.
var types = map[string]string{
	"prepare": "list", "suspect": "list", "doing": "list", "lease": "list", "delay": "zset", "dead": "zset",
	"leased": "zset", "receivers": "zset", "receivers.dead": "zset", "kept": "zset", "keeper": "hash", "ids": "hash",
	"running": "hash", "done": "hash", "recur": "hash", "counts": "hash", "cancelled": "set", "waited": "set",
	"receipts": "set", "once": "string", "about": "string",
}

// key is what the name of a key says: its channel, its state, and whose list it is.
type key struct {
	channel, state string // empty: it is not shunt's
	holder         string // doing: the incarnation; lease: the lease
}

// The name of an incarnation has its number of workers, and as that of a lease its length in ms.
var (
	incarnation = regexp.MustCompile(`^[0-9A-Z]{26}-(\d{1,5})-(\d{1,9})$`)
	lease       = regexp.MustCompile(`^[A-Z2-7]{26}-\d{1,3}-\d{1,12}$`)
)

func parseKey(name string) (k key) {
	channel, state, is := strings.Cut(name, "}.")
	if !is || !strings.HasPrefix(channel, "{") || len(channel) < 2 || len(channel) > 201 {
		return k
	}
	channel = channel[1:]
	switch whose, is := strings.CutPrefix(state, "doing."); {
	case is:
		if dot := strings.LastIndexByte(whose, '.'); dot > 0 {
			return key{channel, "doing", whose[:dot]}
		}
	case strings.HasPrefix(state, "leased."):
		return key{channel, "lease", state[len("leased."):]}
	case strings.HasPrefix(state, "once."):
		return key{channel: channel, state: "once"}
	case strings.HasPrefix(state, "about."):
		return key{channel: channel, state: "about"}
	case types[state] != "" && state != "doing" && state != "lease" && state != "once" && state != "about":
		return key{channel: channel, state: state}
	}
	return k
}

func (c *channel) key(state string) string { return "{" + c.name + "}." + state }

// channel is what was seen of one.
type channel struct {
	name   string
	listed bool
	types  map[string]string // of its keys, by state
	doing  map[string]string // lists of workers: the incarnations
	leases map[string]string // lists of leases: the leases
	o      shunt.Overview
}

func (e *examination) channel(name string) *channel {
	c := e.seen[name]
	if c == nil {
		c = &channel{name: name, types: make(map[string]string), doing: make(map[string]string),
			leases: make(map[string]string)}
		e.seen[name] = c
	}
	return c
}

// channels reads which channels there are.
func (e *examination) channels() ([]string, error) {
	if names := e.o.Channels; len(names) > 0 {
		for _, name := range names {
			e.channel(name).listed = true
		}
		e.report.Channels = len(names)
		return names, nil
	}
	var names []string
	for cursor := "0"; ; {
		r, err := e.ask(command{"SSCAN", channelsKey, cursor, "COUNT", scanCount})
		if err != nil {
			return nil, err
		}
		page := r[0].values()
		if len(page) != 2 {
			if !r[0].wrongType() {
				e.limit("the list of channels: %v", r[0].err)
			}
			break
		}
		for _, name := range (reply{v: page[1]}).strings() {
			if len(names) < mostOfAll && !e.channel(name).listed {
				e.channel(name).listed = true
				names = append(names, name)
			}
		}
		if cursor = (reply{v: page[0]}).text(); cursor == "0" {
			break
		}
		if len(names) >= mostOfAll {
			e.limit("of all channels %d were looked at", mostOfAll)
			break
		}
		e.rest(e.o.Pause)
	}
	slices.Sort(names)
	e.report.Channels = len(names)
	return names, nil
}

// scan looks through the names of all keys, and at the type and the time to live of those that are shunt's.
func (e *examination) scan(pattern string) {
	size, lists := e.one("DBSIZE").int(), 0
	for cursor, steps := "0", 0; ; steps++ {
		if e.over("of some %d keys %d were looked at", size, min(size, steps*scanCount)) {
			return
		}
		r := e.one("SCAN", cursor, "MATCH", pattern, "COUNT", scanCount)
		page := r.values()
		if len(page) != 2 {
			e.limit("the keys: %v", r.err)
			return
		}
		names := slices.DeleteFunc((reply{v: page[1]}).strings(), func(name string) bool {
			k := parseKey(name)
			return k.state == "" || len(e.o.Channels) > 0 && !slices.Contains(e.o.Channels, k.channel) ||
				e.seen[k.channel] == nil && len(e.seen) >= 2*mostOfAll
		})
		cmds := make([]command, 0, 2*len(names))
		for _, name := range names {
			cmds = append(cmds, command{"TYPE", name}, command{"PTTL", name})
		}
		all, err := e.ask(cmds...)
		if err != nil {
			e.limit("the keys: %v", err)
			return
		}
		e.report.Keys += len(names)
		for i, name := range names {
			k := parseKey(name)
			c, kind, left := e.channel(k.channel), all[2*i].text(), all[2*i+1]
			if kind == "none" || kind == "" {
				continue
			}
			switch k.state {
			case "doing", "lease":
				if lists++; lists > mostLists {
					e.limit("of the lists of workers and leases %d were looked at", mostLists)
				} else if k.state == "doing" {
					c.doing[name] = k.holder
				} else {
					c.leases[name] = k.holder
				}
			case "about": // of a receiver, and gone some time after it
			default:
				c.types[k.state] = kind
			}
			e.judgeKey(k, name, kind, left)
		}
		if cursor = (reply{v: page[0]}).text(); cursor == "0" {
			e.scanned = true
			return
		}
		e.rest(e.o.Pause)
	}
}

func (e *examination) judgeKey(k key, name, kind string, left reply) {
	if kind != types[k.state] {
		e.found(shunt.Critical, WrongType, Finding{Channel: k.channel, Key: name,
			Do: fmt.Sprintf("RENAMENX '%s' '%s', once it is known whose it is", name, name+".misplaced")},
			"%s is a %s, and should be a %s", name, kind, types[k.state])
	}
	lasts := k.state != "counts" && k.state != "once" && k.state != "about"
	if ms := left.int(); left.err == nil && ms >= 0 && lasts {
		e.found(shunt.Critical, Expires, Finding{Channel: k.channel, Key: name, Number: float64(ms) / 1000, Fix: Safe,
			Do: "PERSIST '" + name + "', and look who sets times to live"},
			"%s is gone in %v", name, (time.Duration(ms) * time.Millisecond).Round(time.Second))
	}
}

// keys judges what only all keys together show.
func (e *examination) keys() {
	for name, kind := range map[string]string{channelsKey: "set", auditKey: "stream"} {
		if is := e.one("TYPE", name); is.err == nil && is.text() != kind && is.text() != "none" {
			e.found(shunt.Critical, WrongType, Finding{Key: name, Do: "RENAMENX " + name + " " + name + ".misplaced"},
				"%s is a %s, and should be a %s", name, is.text(), kind)
		}
	}
	if len(e.o.Channels) > 0 {
		return
	}
	var empty []string
	for _, name := range e.names() {
		c := e.seen[name]
		if c.listed && len(c.types)+len(c.doing)+len(c.leases) == 0 {
			empty = append(empty, name)
		}
		// Counts alone are figures of what is over; a list of names that cannot be read lists none.
		_, counts := c.types["counts"]
		if more := len(c.types) + len(c.doing) + len(c.leases); !c.listed && !(more == 1 && counts) && more > 0 &&
			e.report.Channels < mostOfAll {
			e.found(shunt.Warning, Unlisted, Finding{Channel: name, Fix: Safe, Do: "SADD " + channelsKey + " '" +
				name + "'"},
				"the channel has %s, and is not listed", many(more, "key"))
		}
	}
	if len(empty) >= manyEmpty {
		e.found(shunt.Notice, Empty, Finding{Number: float64(len(empty)),
			Do: "SREM " + channelsKey + " '" + empty[0] + "' and so on, of those that no program uses any more"},
			"%d channels are listed and have no key", len(empty))
	}
}

// names are the channels that were seen.
func (e *examination) names() []string {
	all := make([]string, 0, len(e.seen))
	for name := range e.seen {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// parseIncarnation says how many workers a name has.
func parseIncarnation(name string) (workers int, is bool) {
	parts := incarnation.FindStringSubmatch(name)
	if parts == nil {
		return 0, false
	}
	workers, err := strconv.Atoi(parts[1])
	return workers, err == nil
}
