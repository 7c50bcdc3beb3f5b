package trial

import "testing"

// Payloads that are no messages, or whose bytes are not those that were enqueued, are seen.
func TestChecksum(t *testing.T) {
	m := &Message{ID: "c/1", Plan: PlanOK, Filler: []byte("abc \n\x00")}
	if got := ParseMessage(m.Payload()); got.corrupt != "" || got.ID != m.ID || got.Plan != m.Plan ||
		string(got.Filler) != string(m.Filler) {
		t.Errorf("%+v", got)
	}
	for i := range m.Payload() {
		p := m.Payload()
		p[i] ^= 1
		if got := ParseMessage(p); got.corrupt == "" {
			t.Errorf("byte %d changed: %+v", i, got)
		}
	}
	for _, p := range []string{"", "x", "a b c"} {
		if got := ParseMessage([]byte(p)); got.corrupt == "" {
			t.Errorf("%q: %+v", p, got)
		}
	}
}
