package link

import "testing"

// One server has all channels today.
func TestRouter(t *testing.T) {
	t.Parallel()
	s := &Server{}
	r := NewRouter(s)
	for _, channel := range []string{"", "orders", "a}b{c"} {
		if r.For(channel) != s {
			t.Errorf("%q has another server", channel)
		}
	}
}
