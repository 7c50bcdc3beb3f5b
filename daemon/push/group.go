package push

import (
	"errors"
	"fmt"
	"mime"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// State says whether a group is at work.
type State string

const (
	Active  State = "active"
	Paused  State = "paused"  // by somebody
	Stopped State = "stopped" // by its endpoint, which answered 410
)

// What a group's fields may be.
const (
	maxQueues  = 64 // as ReceiveWeighted has it
	maxChannel = 200
	maxName    = 64
	maxURL     = 2048
	maxAllow   = 64
	maxSecrets = 8
	maxResult  = 1 << 20 // as SetResult has it
)

// The forms of a request's body.
const (
	Payload = "payload" // the message's payload as it is
	Lmstfy  = "lmstfy"  // the job as JSON, as lmstfy's pushers had it
)

// What a 4xx means.
const (
	Retry  = "retry"
	Reject = "reject"
)

// Settings are what a user says of a group. NewSettings gives the defaults.
type Settings struct {
	Queues   []string `json:"queues"`   // of the namespace, 1 to 64
	Endpoint string   `json:"endpoint"` // http:// or https:// URL, without user and fragment
	// Workers are how many requests each process has under way: 1 to 1,000, default 4. While all queues have messages,
	// each gets the same share.
	Workers int `json:"workers"`
	// TimeoutMS bounds a request with its answer: 100 ms to an hour, default 30 s.
	TimeoutMS int64 `json:"timeout_ms"`
	// Attempts is how often a message is posted before it is dead: 1 to 255, default 25. A message's own come first.
	Attempts int `json:"attempts"`
	// The backoff is BackoffMS after the first attempt, and then twice the last, up to MaxBackoffMS, each with up to a
	// fifth more. Defaults 10 s and an hour; up to a week.
	BackoffMS    int64 `json:"backoff_ms"`
	MaxBackoffMS int64 `json:"max_backoff_ms"`
	// MaxRetryAfterMS bounds what Retry-After may ask for: 1 s to a week, default an hour.
	MaxRetryAfterMS int64    `json:"max_retry_after_ms"`
	ContentType     string   `json:"content_type"`  // of the request, default application/json
	Format          string   `json:"format"`        // Payload, the default, or Lmstfy
	ClientErrors    string   `json:"client_errors"` // Retry, the default, or Reject
	Result          bool     `json:"result"`        // whether the answer's body is the result of a message with an ID
	MaxAnswer       int      `json:"max_answer"`    // bytes of that body: 1 to 1 MB, default 64 KB
	Allow           []string `json:"allow"`         // addresses and CIDRs that may be reached beside public ones
	Secrets         []Secret `json:"secrets"`       // up to 8; required unless Unsigned
	Unsigned        bool     `json:"unsigned"`      // requests have no signature
}

// NewSettings are the defaults.
func NewSettings() Settings {
	return Settings{Workers: 4, TimeoutMS: 30_000, Attempts: 25, BackoffMS: 10_000, MaxBackoffMS: 3_600_000,
		MaxRetryAfterMS: 3_600_000, ContentType: "application/json", Format: Payload, ClientErrors: Retry,
		MaxAnswer: 64 << 10, Allow: []string{}, Secrets: []Secret{}}
}

// Key names a group.
type Key struct{ Pool, Namespace, Name string }

func (k Key) String() string { return k.Pool + "/" + k.Namespace + "/" + k.Name }

// field is the group's in the hash of its pool.
func (k Key) field() string { return k.Namespace + "/" + k.Name }

// Group is the record of a group.
type Group struct {
	Key `json:"-"`
	Settings
	State     State     `json:"state"`
	Reason    string    `json:"reason,omitempty"`    // why it is stopped
	StoppedAt time.Time `json:"stopped_at,omitzero"` // by the clock of the process that stopped it, as the others are
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at"`
}

// isName is ^[-_[:alnum:]]+$.
func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}

// visible says whether a text is visible ASCII, and of others.
func visible(s, others string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r <= ' ' || r >= 0x7f) && !strings.ContainsRune(others, r)
	})
}

// Validate says all that is wrong, each with its field, and tells no secret.
func (s *Settings) Validate(namespace string) error {
	var errs []error
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
		}
	}
	within := func(field string, n, least, most int64) {
		check(n >= least && n <= most, field, "%d: want %d to %d", n, least, most)
	}
	const hour, week = 3_600_000, 7 * 24 * 3_600_000
	check(len(s.Queues) > 0 && len(s.Queues) <= maxQueues, "queues", "there are %d: want 1 to %d", len(s.Queues),
		maxQueues)
	for i, q := range s.Queues {
		check(isName(q) && q[0] != '_', "queues", "%.40q: want letters, digits, - and _, and no _ at the beginning", q)
		check(len(namespace)+1+len(q) <= maxChannel, "queues", "%.40q: with its namespace it is too long", q)
		check(!slices.Contains(s.Queues[:i], q), "queues", "%.40q is there twice", q)
	}
	within("workers", int64(s.Workers), 1, 1000)
	within("timeout_ms", s.TimeoutMS, 100, hour)
	within("attempts", int64(s.Attempts), 1, 255)
	within("backoff_ms", s.BackoffMS, 1, week)
	within("max_backoff_ms", s.MaxBackoffMS, 1, week)
	check(s.MaxBackoffMS >= s.BackoffMS, "max_backoff_ms", "%d is less than backoff_ms", s.MaxBackoffMS)
	within("max_retry_after_ms", s.MaxRetryAfterMS, 1000, week)
	within("max_answer", int64(s.MaxAnswer), 1, maxResult)
	kind, _, err := mime.ParseMediaType(s.ContentType)
	check(err == nil && strings.Contains(kind, "/") && len(s.ContentType) <= 255 && visible(s.ContentType, " "),
		"content_type", "%.40q: want a media type such as application/json", s.ContentType)
	check(s.Format == Payload || s.Format == Lmstfy, "format", "%.40q: want payload or lmstfy", s.Format)
	check(s.ClientErrors == Retry || s.ClientErrors == Reject, "client_errors", "%.40q: want retry or reject",
		s.ClientErrors)
	check(len(s.Allow) <= maxAllow, "allow", "there are %d: want %d at most", len(s.Allow), maxAllow)
	if len(s.Allow) <= maxAllow {
		_, err := Networks(s.Allow)
		check(err == nil, "allow", "%v", err)
	}
	s.checkEndpoint(check)
	s.checkSecrets(check)
	return errors.Join(errs...)
}

func (s *Settings) checkSecrets(check func(ok bool, field, format string, args ...any)) {
	check(len(s.Secrets) <= maxSecrets, "secrets", "there are %d: want %d at most", len(s.Secrets), maxSecrets)
	check(len(s.Secrets) > 0 || s.Unsigned, "secrets", "there is none: want one, or unsigned")
	check(len(s.Secrets) == 0 || !s.Unsigned, "unsigned", "there are secrets, too")
	for i, secret := range s.Secrets {
		_, err := secret.key()
		check(err == nil, "secrets", "number %d: %v", i, err)
		check(!slices.Contains(s.Secrets[:i], secret), "secrets", "number %d is there twice", i)
	}
}

// checkEndpoint does not quote what may be a password.
func (s *Settings) checkEndpoint(check func(ok bool, field, format string, args ...any)) {
	const form = "want a URL such as https://example.org/hook"
	u, err := url.Parse(s.Endpoint)
	switch {
	case s.Endpoint == "":
		check(false, "endpoint", "it is missing: %s", form)
		return
	case len(s.Endpoint) > maxURL:
		check(false, "endpoint", "it has %d bytes: want %d at most", len(s.Endpoint), maxURL)
		return
	case err != nil:
		check(false, "endpoint", "it is no URL: %s", form)
		return
	}
	check(u.User == nil, "endpoint", "it has a user: want a URL without one")
	check(u.Fragment == "" && !strings.Contains(s.Endpoint, "#"), "endpoint",
		"it has a fragment: want a URL without one")
	check(u.Scheme == "http" || u.Scheme == "https", "endpoint", "its scheme is %.20q: want http or https", u.Scheme)
	check(u.Opaque == "" && u.Hostname() != "", "endpoint", "it has no host: %s", form)
}

// Networks reads addresses and CIDRs. The error joins those of all that are none.
func Networks(texts []string) ([]netip.Prefix, error) {
	all := make([]netip.Prefix, 0, len(texts))
	var errs []error
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(text); err == nil && a.Zone() == "" {
				p = netip.PrefixFrom(a, a.BitLen())
			}
		}
		if err != nil || !p.IsValid() || p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("%.60q: want an address or a CIDR such as 10.0.0.0/8", text))
			continue
		}
		all = append(all, p.Masked())
	}
	return all, errors.Join(errs...)
}

// public is the group without its secrets: their marks stand in their place.
func (g Group) public() Group {
	marks := make([]Secret, len(g.Secrets))
	for i, s := range g.Secrets {
		marks[i] = Secret(s.Mark())
	}
	g.Secrets = marks
	return g
}

// fill takes the lists that are not given from what was there, and the secrets that are given by their marks.
func (s *Settings) fill(had *Settings) {
	if s.Queues == nil {
		s.Queues = had.Queues
	}
	if s.Allow == nil {
		s.Allow = had.Allow
	}
	if s.Secrets == nil {
		s.Secrets = had.Secrets
	}
	for i, given := range s.Secrets {
		for _, secret := range had.Secrets {
			if string(given) == secret.Mark() {
				s.Secrets[i] = secret
			}
		}
	}
}

func (s *Settings) timeout() time.Duration { return time.Duration(s.TimeoutMS) * time.Millisecond }
