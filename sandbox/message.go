package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// message is a payload that a child handles.
type message struct {
	pool    *Pool
	channel string
	payload []byte
	made    bool // by Unmarshal: it has a payload
}

func (m *message) Channel() string { return m.channel }

// Timeout is the Pool's.
func (m *message) Timeout() time.Duration { return m.pool.Timeout }

func (m *message) Unmarshal(payload []byte) (shunt.IMessage, error) {
	return &message{pool: m.pool, channel: m.channel, payload: payload, made: true}, nil
}

// Marshal is for middleware that enqueues a message again.
func (m *message) Marshal() ([]byte, error) {
	if !m.made {
		return nil, fmt.Errorf("sandbox: the message of channel %q is a prototype for Receive: enqueue shunt.Raw(%q, "+
			"payload), or a type of your own", m.channel, m.channel)
	}
	return m.payload, nil
}

// closedSnooze is how long a message waits that meets a closed Pool.
const closedSnooze = time.Second

func (m *message) Resolve(ctx context.Context) error {
	s, err := m.pool.open()
	var v verdict
	if err == nil {
		i, ok := shunt.FromContext(ctx)
		if !ok {
			i.Channel = m.channel
		}
		v, err = s.handle(ctx, &i, m.payload)
		if err == nil && v.result != nil && i.ID != "" {
			err = shunt.SetResult(ctx, v.result)
		}
	}
	switch {
	case errors.Is(err, errClosed):
		return shunt.Snooze(closedSnooze)
	case err != nil:
		return err
	}
	return v.err
}

// handle has a child handle a message.
func (s *state) handle(ctx context.Context, i *shunt.Info, payload []byte) (v verdict, err error) {
	for {
		c, err := s.take(ctx)
		if err != nil {
			return v, err
		}
		if s.protocol == Exec {
			v, err = s.run(ctx, i, payload)
			s.note(err)
			s.give(nil)
			return v, err
		}
		if c != nil && c.isGone() {
			c.spent = true
			s.give(c)
			continue
		}
		if c == nil {
			if c, err = s.newChild(); err != nil {
				s.give(nil)
				return v, err
			}
		}
		v, err = c.ask(ctx, i, payload)
		s.note(err)
		s.give(c)
		if err != errNotBegun {
			return v, err
		}
	}
}
