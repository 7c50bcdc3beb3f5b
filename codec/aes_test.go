package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
)

// A ciphertext is read where it was written, and nowhere else: not at another message or place, and not if a bit of it
// was changed or a byte is missing.
func TestAESBinds(t *testing.T) {
	t.Parallel()
	for _, any := range []bool{false, true} {
		a := &AES{Keys: []Key{key("k1"), {ID: "k2", Secret: key("k1").Secret}}, AnySerial: any}
		p := shunt.Payload{Channel: "c", Serial: serial(1), ID: "7", Type: "mail", Encoding: "half",
			Bytes: []byte("text")}
		param, encoded, err := a.Encode(t.Context(), p)
		if err != nil || bytes.Contains(encoded, p.Bytes) {
			t.Fatalf("%q, %v", encoded, err)
		}
		decode := func(change func(p *shunt.Payload, param *string)) error {
			p, param := p, param
			p.Bytes = bytes.Clone(encoded)
			change(&p, &param)
			plain, err := a.Decode(t.Context(), param, p, 100)
			if err == nil && string(plain) != "text" {
				t.Errorf("it is read as %q", plain)
			}
			return err
		}
		if err := decode(func(*shunt.Payload, *string) {}); err != nil {
			t.Error(err)
		}
		for what, change := range map[string]func(p *shunt.Payload, param *string){
			"channel":  func(p *shunt.Payload, _ *string) { p.Channel = "d" },
			"serial":   func(p *shunt.Payload, _ *string) { p.Serial = serial(2) },
			"no":       func(p *shunt.Payload, _ *string) { p.Serial = "" },
			"id":       func(p *shunt.Payload, _ *string) { p.ID = "" },
			"type":     func(p *shunt.Payload, _ *string) { p.Type = "" },
			"moved":    func(p *shunt.Payload, _ *string) { p.Type, p.ID = "", "7mail" },
			"encoding": func(p *shunt.Payload, _ *string) { p.Encoding = "" },
			"key":      func(_ *shunt.Payload, param *string) { *param = strings.Replace(*param, "k1", "k2", 1) },
			"unknown":  func(_ *shunt.Payload, param *string) { *param = "k3" },
			"bound": func(_ *shunt.Payload, param *string) {
				*param = strings.TrimSuffix(*param+unbound, unbound+unbound)
			},
			"empty":  func(p *shunt.Payload, _ *string) { p.Bytes = nil },
			"longer": func(p *shunt.Payload, _ *string) { p.Bytes = append(p.Bytes, 0) },
			"large":  func(p *shunt.Payload, _ *string) { p.Bytes = make([]byte, 200) },
		} {
			err := decode(change)
			if wants := !any || what != "serial" && what != "no" && what != "id"; (err != nil) != wants {
				t.Errorf("another %s, of any serial %v: %v", what, any, err)
			}
		}
		for i := range encoded {
			if decode(func(p *shunt.Payload, _ *string) { p.Bytes[i] ^= 1 }) == nil {
				t.Errorf("bit %d is changed", 8*i)
			}
			if decode(func(p *shunt.Payload, _ *string) { p.Bytes = p.Bytes[:i] }) == nil {
				t.Errorf("%d bytes are enough", i)
			}
		}
		if string(p.Bytes) != "text" {
			t.Errorf("the payload became %q", p.Bytes)
		}
	}
}

// A key that is printed, logged or written as JSON shows its name alone.
func TestKeyIsNotShown(t *testing.T) {
	t.Parallel()
	k := Key{ID: "k1", Secret: []byte("0123456789abcdef")}
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, nil))
	log.Info("x", "key", k, "aes", &AES{Keys: []Key{k}})
	log = slog.New(slog.NewTextHandler(&b, nil))
	log.Info("x", "key", k, "aes", &AES{Keys: []Key{k}})
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%s %v %+v %#v %v %+v", text, k, k, k, &AES{Keys: []Key{k}}, []Key{k})
	for _, secret := range []string{string(k.Secret), base64.StdEncoding.EncodeToString(k.Secret),
		strings.Trim(fmt.Sprint(k.Secret), "[]")} {
		if strings.Contains(b.String(), secret) {
			t.Errorf("the secret is shown: %s", &b)
		}
	}
	if !strings.Contains(b.String(), "k1") {
		t.Error("no name")
	}
}
