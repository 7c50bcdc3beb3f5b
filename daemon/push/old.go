package push

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// What lmstfy's routes bound.
const (
	oldWorkers = 16
	oldTimeout = 3600 // s
)

// old is a group as lmstfy's routes have it.
type old struct {
	Queues   []string `json:"queues"`
	Endpoint string   `json:"endpoint"`
	Workers  int      `json:"workers"`
	Timeout  int64    `json:"timeout"` // s
}

func oldOf(g *Group) old {
	return old{g.Queues, g.Endpoint, g.Workers, (g.TimeoutMS + 999) / 1000}
}

// check bounds what is given, or with all also what is not.
func (o *old) check(all bool) error {
	var errs []error
	if (all || o.Workers != 0) && (o.Workers < 1 || o.Workers > oldWorkers) {
		errs = append(errs, fmt.Errorf("workers: %d: want 1 to %d", o.Workers, oldWorkers))
	}
	if (all || o.Timeout != 0) && (o.Timeout < 1 || o.Timeout > oldTimeout) {
		errs = append(errs, fmt.Errorf("timeout: %d: want 1 to %d", o.Timeout, oldTimeout))
	}
	return errors.Join(errs...)
}

// set sets what is given. As with lmstfy, a failed job comes back after the timeout.
func (o *old) set(s *Settings) {
	if o.Queues != nil {
		s.Queues = o.Queues
	}
	if o.Endpoint != "" {
		s.Endpoint = o.Endpoint
	}
	if o.Workers != 0 {
		s.Workers = o.Workers
	}
	if o.Timeout != 0 {
		s.TimeoutMS = o.Timeout * 1000
	}
	if s.Format == Lmstfy {
		s.BackoffMS, s.MaxBackoffMS = s.TimeoutMS, s.TimeoutMS
	}
}

func (c *call) oldList() {
	groups, err := c.records()
	if err != nil {
		c.failed(err)
		return
	}
	all := make(map[string]map[string][]string)
	for _, g := range groups {
		if all[g.Pool] == nil {
			all[g.Pool] = make(map[string][]string)
		}
		all[g.Pool][g.Namespace] = append(all[g.Pool][g.Namespace], g.Name)
	}
	c.answer(http.StatusOK, map[string]any{"pushers": all})
}

func (c *call) oldOfNamespace() {
	groups, err := c.records()
	if err != nil {
		c.failed(err)
		return
	}
	all := make(map[string]old)
	for _, g := range groups {
		if g.Namespace == c.key.Namespace {
			all[g.Name] = oldOf(&g)
		}
	}
	c.answer(http.StatusOK, map[string]any{"pushers": all})
}

func (c *call) oldShow() {
	g, _, err := c.p.store.get(c.ctx, c.key)
	switch {
	case errors.Is(err, ErrNotFound):
		c.refuse(http.StatusNotFound, "pusher was not found")
	case err != nil:
		c.failed(err)
	default:
		c.answer(http.StatusOK, map[string]any{"pusher": oldOf(&g)})
	}
}

// oldCreate makes a group whose requests have lmstfy's form and no signature.
func (c *call) oldCreate() {
	var o old
	if !c.oldRead(&o, true) {
		return
	}
	g := Group{Key: c.key, Settings: NewSettings(), State: Active}
	g.Format, g.Unsigned = Lmstfy, true
	o.set(&g.Settings)
	if !c.checked(&g.Settings) {
		return
	}
	_, err := c.p.store.create(c.ctx, g)
	c.oldChanged(http.StatusCreated, "created", err)
}

// oldRead reads the body. It answers where that is wrong.
func (c *call) oldRead(o *old, all bool) bool {
	if !c.decode(o, false) {
		return false
	}
	err := o.check(all)
	if err != nil {
		c.refuse(http.StatusBadRequest, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err == nil
}

// oldChange leaves as it is what the body does not have, or has as zero.
func (c *call) oldChange() {
	var o old
	if !c.oldRead(&o, false) {
		return
	}
	_, err := c.p.store.change(c.ctx, c.key, func(g *Group) error {
		if o.set(&g.Settings); !c.checked(&g.Settings) {
			return errAnswered
		}
		return nil
	})
	c.oldChanged(http.StatusOK, "ok", err)
}

func (c *call) oldDelete() {
	err := c.p.store.delete(c.ctx, c.key)
	if errors.Is(err, ErrNotFound) {
		c.refuse(http.StatusInternalServerError, "the meta key was not found") // lmstfy's status and words
		return
	}
	c.oldChanged(http.StatusOK, "deleted", err)
}

func (c *call) oldChanged(status int, text string, err error) {
	switch {
	case errors.Is(err, ErrExists):
		c.refuse(http.StatusInternalServerError, "the meta key has already exists") // lmstfy's status and words
	case errors.Is(err, ErrNotFound):
		c.refuse(http.StatusNotFound, "the pusher was not found")
	case err != nil:
		c.failed(err)
	default:
		c.p.poke()
		c.p.Log.Info("push: a group was changed", "group", c.key.String())
		c.answer(status, map[string]string{"status": text})
	}
}
