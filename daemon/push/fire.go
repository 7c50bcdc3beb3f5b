package push

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
)

const (
	maxTestBody  = 1 << 20
	maxTestTime  = 30 * time.Second
	maxTestShown = 4 << 10
)

// tested is what a test-fire answers.
type tested struct {
	Status    int    `json:"status,omitempty"` // missing: there was no answer
	WebhookID string `json:"webhook_id"`
	TookMS    int64  `json:"took_ms"`
	Body      string `json:"body,omitempty"` // up to 4 KB, with U+FFFD for what is no text
	Error     string `json:"error,omitempty"`
}

// test posts the body as a message of the first queue, whatever state the group is in. It changes nothing.
func (c *call) test() {
	g, _, err := c.p.store.get(c.ctx, c.key)
	if err != nil {
		c.failed(err)
		return
	}
	payload, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxTestBody))
	if err != nil {
		c.refuse(http.StatusRequestEntityTooLarge, "body too large")
		return
	}
	if !c.checked(&g.Settings) {
		return
	}
	g.TimeoutMS = min(g.TimeoutMS, maxTestTime.Milliseconds())
	s := newSender(g, *c.p.allow.Load(), c.p.RootCAs)
	defer s.retire()
	i := &shunt.Info{Channel: c.key.Namespace + "/" + g.Queues[0], Attempt: 1, EnqueuedAt: time.Now()}
	t := tested{WebhookID: "test-" + ulid.MustNew(ulid.Now(), rand.Reader).String()}
	i.ID = t.WebhookID
	body, err := s.body(i, payload)
	if err != nil {
		c.failed(err)
		return
	}
	c.expire(maxTestTime + writeTimeout)
	began := time.Now()
	a, err := s.post(c.r.Context(), i, t.WebhookID, body, maxTestShown)
	t.TookMS, t.Status, t.Body = time.Since(began).Milliseconds(), a.status, strings.ToValidUTF8(string(a.body),
		string(utf8.RuneError))
	if err = errors.Join(err, a.cut); err != nil {
		t.Error = err.Error()
	}
	c.answer(http.StatusOK, t)
}
