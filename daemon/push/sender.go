package push

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	dialTimeout = 10 * time.Second // also of a TLS handshake; the timeout of the request holds, too
	idleTimeout = 90 * time.Second // of a connection
	maxHeaders  = 64 << 10         // bytes of an answer's
	// So much, and for so long, is read of a body that nobody needs: for the text of a failure, and for its connection
	// to be used again.
	maxDrain, drainTime = 64 << 10, time.Second
	maxQuoted           = 200 // bytes of an answer in the text of a failure
)

// sender posts what a group has. It is not changed: a changed group gets another one.
type sender struct {
	group     Group
	keys      [][]byte
	transport *http.Transport
	client    *http.Client

	mu      sync.Mutex
	uses    int
	retired bool
	gone    bool // the endpoint has answered 410
}

// newSender makes the sender of a valid group.
func newSender(g Group, allow []netip.Prefix, roots *x509.CertPool) *sender {
	s := &sender{group: g}
	for _, secret := range g.Secrets {
		key, _ := secret.key()
		s.keys = append(s.keys, key)
	}
	own, _ := Networks(g.Allow)
	dialer := &net.Dialer{Timeout: min(dialTimeout, g.timeout()), Control: control(own, allow)}
	s.transport = &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    min(dialTimeout, g.timeout()),
		ResponseHeaderTimeout:  g.timeout(),
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    g.Workers,
		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true, // a bound on what is read is one on what it becomes
		ForceAttemptHTTP2:      true,
	}
	s.client = &http.Client{Transport: s.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return s
}

// acquire says whether the sender may be used. release follows.
func (s *sender) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.uses++
	return true
}

func (s *sender) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses--
	if s.retired && s.uses == 0 {
		s.transport.CloseIdleConnections()
	}
}

// retire closes the sender's connections once it is not used any more.
func (s *sender) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if s.uses == 0 {
		s.transport.CloseIdleConnections()
	}
}

// left says, or with true notes, that the endpoint has answered 410.
func (s *sender) left(now bool) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.gone
	s.gone = s.gone || now
	return before
}

// back has the next message find out anew whether the endpoint has left.
func (s *sender) back() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = false
}

// answer is what an endpoint said.
type answer struct {
	status     int
	retryAfter string
	body       []byte // up to the bound that was asked for
	more       bool   // there was more
	cut        error  // the body broke off; nil where nobody needs it
	took       time.Duration
}

func (a *answer) done() bool { return a.status >= 200 && a.status < 300 }

// post sends one request. need bounds the body of a 2xx that is needed; 0: none is. An error means that there is no
// answer.
func (s *sender) post(ctx context.Context, i *shunt.Info, id string, body []byte, need int) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.group.timeout(), errTimeout)
	defer cancel()
	began := time.Now()
	r, err := s.request(ctx, i, id, body)
	if err != nil {
		return a, err
	}
	res, err := s.client.Do(r)
	if err != nil {
		return a, told(ctx, err)
	}
	defer res.Body.Close()
	a.status, a.retryAfter = res.StatusCode, res.Header.Get("Retry-After")
	if a.done() && need > 0 {
		a.body, err = io.ReadAll(io.LimitReader(res.Body, int64(need)+1))
		if len(a.body) > need {
			a.body, a.more = a.body[:need], true
		} else if err != nil {
			a.cut = told(ctx, err)
		}
	} else {
		late := time.AfterFunc(drainTime, cancel)
		defer late.Stop()
		a.body, _ = io.ReadAll(io.LimitReader(res.Body, maxDrain+1))
		a.body = a.body[:min(len(a.body), maxQuoted)]
	}
	a.took = time.Since(began)
	return a, nil
}

func (s *sender) request(ctx context.Context, i *shunt.Info, id string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.group.Endpoint, reader(body))
	if err != nil {
		return nil, errors.New("push: the endpoint is no URL") // Validate has seen it
	}
	r.ContentLength = int64(len(body))
	seconds := time.Now().Unix()
	h := r.Header
	h.Set("Content-Type", s.group.ContentType)
	h.Set("User-Agent", "shuntd")
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(seconds, 10))
	if len(s.keys) > 0 {
		h.Set("Webhook-Signature", signatures(s.keys, id, seconds, body))
	}
	h.Set("Shunt-Channel", escape(i.Channel))
	h.Set("Shunt-Attempt", strconv.Itoa(i.Attempt))
	if i.Serial != "" {
		h.Set("Shunt-Serial", i.Serial)
	}
	if i.ID != "" {
		h.Set("Shunt-Id", escape(i.ID))
	}
	return r, nil
}

// errTimeout is why a request ended that took too long.
var errTimeout = errors.New("push: the group's timeout is over")

// told is an error without the URL, which may have a secret in its path.
func told(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
