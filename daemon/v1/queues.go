package v1

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/shuntmq/shunt"
)

const maxNames = 1000

// unquoted is the text of a JSON value, empty where it is none.
func unquoted(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text)
	return text
}

// queues lists those of the namespace that were ever used, a page at a time.
func (a *API) queues(c *call) {
	a.names(c, "queues", func(channel string) (string, bool) {
		return strings.CutPrefix(channel, c.ns+"/")
	})
}

// namespaces lists those of a pool.
func (a *API) namespaces(c *call) {
	a.names(c, "namespaces", func(channel string) (string, bool) {
		ns, _, ok := strings.Cut(channel, "/")
		return ns, ok && isName(ns)
	})
}

// names lists a part of the channels' names, without repeats.
func (a *API) names(c *call, field string, of func(string) (string, bool)) {
	f := c.parameters(false)
	after, _ := f.string("after")
	limit := int(f.integer("limit", 100, 1, maxNames))
	f.end()
	if !a.none(c) || c.bad() {
		return
	}
	channels, err := c.pool.Channels(c.r.Context())
	if err != nil {
		c.failed("list "+field, err)
		return
	}
	names := make([]string, 0, limit)
	for _, channel := range channels {
		if name, is := of(channel); is && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	out := map[string]any{field: names}
	if len(names) > limit {
		out[field], out["next_after"] = names[:limit], names[limit-1]
	}
	_ = c.answer(http.StatusOK, out)
}

// stateJSON counts messages of one state.
type stateJSON struct {
	Count       int   `json:"count"`
	OldestAgeMS int64 `json:"oldest_age_ms,omitempty"`
	NextDueInMS int64 `json:"next_due_in_ms,omitempty"`
}

func (a *API) stats(c *call) {
	c.noParameters()
	if !a.none(c) || c.bad() {
		return
	}
	stats, err := c.pool.Stats(c.r.Context(), c.channel())
	if err != nil {
		c.failed("count", err)
		return
	}
	states := make(map[shunt.State]stateJSON, len(stats))
	for s, n := range stats {
		states[s] = stateJSON{n.Count, millis(n.OldestAge), millis(n.NextDueIn)}
	}
	_ = c.answer(http.StatusOK, map[string]any{"queue": c.queue, "states": states})
}
