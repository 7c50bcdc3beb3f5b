package push

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Routes are the routes for operators by pattern, for the mux of a listener that has checked who asks.
//
//	GET    /push                        list groups; of ?pool and ?namespace where they are given
//	POST   /push/{ns}/{group}           create one of ?pool, by default "default": the body has Settings
//	GET    /push/{ns}/{group}           show it
//	PATCH  /push/{ns}/{group}           change the settings that the body has; secrets may be given by their marks
//	DELETE /push/{ns}/{group}           delete it; requests under way end
//	POST   /push/{ns}/{group}/pause     take no more messages
//	POST   /push/{ns}/{group}/resume    take messages again, also after a stop
//	POST   /push/{ns}/{group}/test      post the body to the endpoint once, and show what it answered
//
// and lmstfy's: GET /pushers, GET /pusher/{ns}, and GET, POST, PUT and DELETE /pusher/{ns}/{group}.
func (p *Pusher) Routes() map[string]http.Handler {
	p.begin()
	routes := make(map[string]http.Handler)
	// A browser with access here must not make groups for the web pages that it shows.
	browsers := http.NewCrossOriginProtection()
	browsers.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(&call{p: p, w: w, r: r}).refuse(http.StatusForbidden, "a browser asks for another site's page")
	}))
	handle := func(pattern string, n need, f func(*call)) {
		routes[pattern] = browsers.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), redisTimeout)
			defer cancel()
			c := &call{p: p, w: w, r: r, ctx: ctx}
			if c.named(n) {
				f(c)
			}
		}))
	}
	handle("GET /push", needNothing, (*call).list)
	handle("POST /push/{ns}/{group}", needGroup, (*call).create)
	handle("GET /push/{ns}/{group}", needGroup, (*call).show)
	handle("PATCH /push/{ns}/{group}", needGroup, (*call).change)
	handle("DELETE /push/{ns}/{group}", needGroup, (*call).delete)
	handle("POST /push/{ns}/{group}/pause", needGroup, (*call).pause)
	handle("POST /push/{ns}/{group}/resume", needGroup, (*call).resume)
	handle("POST /push/{ns}/{group}/test", needGroup, (*call).test)
	handle("GET /pushers", needNothing, (*call).oldList)
	handle("GET /pusher/{ns}", needNamespace, (*call).oldOfNamespace)
	handle("GET /pusher/{ns}/{group}", needGroup, (*call).oldShow)
	handle("POST /pusher/{ns}/{group}", needGroup, (*call).oldCreate)
	handle("PUT /pusher/{ns}/{group}", needGroup, (*call).oldChange)
	handle("DELETE /pusher/{ns}/{group}", needGroup, (*call).oldDelete)
	return routes
}

// view is a group in an answer.
type view struct {
	Pool      string `json:"pool"`
	Namespace string `json:"namespace"`
	Name      string `json:"group"`
	Group
}

func viewOf(g Group) view { return view{g.Pool, g.Namespace, g.Name, g.public()} }

// records are those of all pools, or of the one that the query names.
func (c *call) records() ([]Group, error) {
	groups := []Group{}
	for pool := range c.p.Pools {
		if c.key.Pool != "" && c.key.Pool != pool {
			continue
		}
		all, err := c.p.store.all(c.ctx, pool)
		if err != nil {
			return nil, err
		}
		for _, rec := range all {
			groups = append(groups, rec.group)
		}
	}
	slices.SortFunc(groups, func(a, b Group) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return groups, nil
}

func (c *call) list() {
	groups, err := c.records()
	if err != nil {
		c.failed(err)
		return
	}
	views := []view{}
	for _, g := range groups {
		if ns := c.query.Get("namespace"); ns == "" || ns == g.Namespace {
			views = append(views, viewOf(g))
		}
	}
	c.answer(http.StatusOK, map[string]any{"groups": views})
}

func (c *call) create() {
	g := Group{Key: c.key, Settings: NewSettings(), State: Active}
	if !c.decode(&g.Settings, true) || !c.checked(&g.Settings) {
		return
	}
	g, err := c.p.store.create(c.ctx, g)
	c.changed(http.StatusCreated, g, err)
}

func (c *call) show() {
	g, _, err := c.p.store.get(c.ctx, c.key)
	if err != nil {
		c.failed(err)
		return
	}
	c.answer(http.StatusOK, viewOf(g))
}

// errAnswered says that the client has its answer.
var errAnswered = errors.New("push: answered")

func (c *call) change() {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if err != nil {
		c.refuse(http.StatusRequestEntityTooLarge, "body too large")
		return
	}
	g, err := c.p.store.change(c.ctx, c.key, func(g *Group) error {
		c.r.Body = io.NopCloser(strings.NewReader(string(body)))
		had := g.Settings
		g.Queues, g.Allow, g.Secrets = nil, nil, nil // or a null within a list would be what was there
		if !c.decode(&g.Settings, true) {
			return errAnswered
		}
		g.fill(&had)
		if !c.checked(&g.Settings) {
			return errAnswered
		}
		return nil
	})
	c.changed(http.StatusOK, g, err)
}

func (c *call) pause() {
	g, err := c.p.store.change(c.ctx, c.key, func(g *Group) error {
		if g.State == Active {
			g.State = Paused
		}
		return nil
	})
	c.changed(http.StatusOK, g, err)
}

func (c *call) resume() {
	g, err := c.p.store.change(c.ctx, c.key, func(g *Group) error {
		g.State, g.Reason, g.StoppedAt = Active, "", time.Time{}
		return nil
	})
	c.changed(http.StatusOK, g, err)
}

func (c *call) delete() {
	if err := c.p.store.delete(c.ctx, c.key); err != nil {
		c.failed(err)
		return
	}
	c.p.poke()
	c.expire(writeTimeout)
	c.w.WriteHeader(http.StatusNoContent)
}

// changed answers a change, and has it followed here at once.
func (c *call) changed(status int, g Group, err error) {
	if err != nil {
		c.failed(err)
		return
	}
	c.p.poke()
	c.p.Log.Info("push: a group was changed", "group", g.Key.String(), "state", string(g.State))
	c.answer(status, viewOf(g))
}
