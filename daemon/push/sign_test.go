package push

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// verify is Standard Webhooks' verification, as an endpoint has it: "" or what is wrong.
func verify(g got, secret string) string {
	id, at := g.header.Get("webhook-id"), g.header.Get("webhook-timestamp")
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, g.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || math.Abs(float64(time.Now().Unix()-seconds)) > 300 {
		return "the timestamp is " + at
	}
	for _, s := range strings.Split(g.header.Get("webhook-signature"), " ") {
		if hmac.Equal([]byte(s), []byte(want)) {
			return ""
		}
	}
	return "no signature is right"
}

// The example of Standard Webhooks' own libraries.
func TestSignatureOfTheStandard(t *testing.T) {
	t.Parallel()
	key, err := Secret(secret).key()
	if err != nil {
		t.Fatal(err)
	}
	got := signatures([][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString
	for text, ok := range map[Secret]bool{
		secret:                                   true,
		Secret("whsec_" + b64(make([]byte, 24))): true,
		Secret("whsec_" + b64(make([]byte, 64))): true,
		Secret("whsec_" + base64.RawStdEncoding.EncodeToString(make([]byte, 25))): true,
		Secret("whsec_" + b64(make([]byte, 23))):                                  false,
		Secret("whsec_" + b64(make([]byte, 65))):                                  false,
		Secret(secret[6:]):                                                        false,
		"":                                                                        false,
		"whsec_":                                                                  false,
		"whsec_!":                                                                 false,
		"sha256:0123456789abcdef":                                                 false,
	} {
		if _, err := text.key(); (err == nil) != ok {
			t.Errorf("%q: %v", string(text), err)
		}
	}
	s := Settings{Secrets: []Secret{secret}}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s.Secrets); strings.Contains(text, secret) {
		t.Error(text)
	}
}

// A request has the payload, a signature for each secret, and says of which message it is.
func TestRequest(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s, e := shared(t), newEndpoint(t, nil)
	second := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 64)))
	s.group("g", e.URL+"/hook?a=b", map[string]any{"queues": []string{"q", "p"}, "secrets": []string{secret, second},
		"content_type": "text/plain; charset=utf-8"})
	payload := "\x00\xff bytes\r\n"
	s.publish("q", payload, shunt.ID("an id/%é"))
	s.publish("p", "")
	until(t, "both are there", func() bool { return len(e.all()) == 2 })
	with, without := e.of(payload), e.of("")
	if len(with) != 1 || len(without) != 1 {
		t.Fatalf("%+v", e.all())
	}
	for _, g := range []got{with[0], without[0]} {
		for _, key := range []string{secret, second} {
			if wrong := verify(g, key); wrong != "" {
				t.Errorf("%s: %v", wrong, g.header)
			}
		}
		if verify(g, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24))) == "" {
			t.Error("any secret verifies")
		}
		h := g.header
		if h.Get("Webhook-Id") != h.Get("Shunt-Serial") || len(h.Get("Shunt-Serial")) != 26 ||
			h.Get("Shunt-Attempt") != "1" || h.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%v", h)
		}
	}
	if h := with[0].header; h.Get("Shunt-Channel") != s.ns()+"/q" || h.Get("Shunt-Id") != "an%20id/%25%C3%A9" {
		t.Errorf("%v", h)
	}
	if h := without[0].header; h.Get("Shunt-Channel") != s.ns()+"/p" || h["Shunt-Id"] != nil {
		t.Errorf("%v", h)
	}
	s.empty("q")
	s.empty("p")
}

// A secret is rotated by its mark, while nobody can read it.
func TestRotation(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s, e := shared(t), newEndpoint(t, nil)
	s.group("g", e.URL, nil)
	at := "/push/" + s.ns() + "/g"
	mark := Secret(secret).Mark()
	s.want(200, `"secrets":["`+mark+`"]`, "GET", at, "")
	second := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	both, _ := json.Marshal(map[string]any{"secrets": []string{second, mark}})
	s.want(200, `"secrets":["`+Secret(second).Mark()+`","`+mark+`"]`, "PATCH", at, string(both))
	s.want(400, "secrets: number 0", "PATCH", at, `{"secrets":["sha256:0000000000000000"]}`)
	until(t, "it signs with both", func() bool {
		s.publish("q", "x")
		s.empty("q")
		all := e.all()
		last := all[len(all)-1]
		if verify(last, secret) != "" {
			t.Error("the first secret is lost")
		}
		return verify(last, second) == ""
	})
	s.want(200, "", "PATCH", at, `{"secrets":["`+Secret(second).Mark()+`"]}`)
	until(t, "it signs with the second", func() bool {
		s.publish("q", "x")
		s.empty("q")
		all := e.all()
		last := all[len(all)-1]
		return verify(last, second) == "" && verify(last, secret) != ""
	})
}

// A payload without a serial has the same id at each attempt, and another one has another.
func TestIDOfBarePayload(t *testing.T) {
	t.Parallel()
	a, b := &shunt.Info{Channel: "a"}, &shunt.Info{Channel: "ab"}
	if again := idOf(&shunt.Info{Channel: "a", Attempt: 2}, []byte("bc")); idOf(a, []byte("bc")) != again ||
		idOf(a, []byte("bc")) == idOf(b, []byte("c")) ||
		!strings.HasPrefix(idOf(a, nil), "bare-") || strings.Contains(idOf(a, nil), ".") {
		t.Error(idOf(a, []byte("bc")), idOf(b, []byte("c")))
	}
}
