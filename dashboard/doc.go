// Package dashboard shows the channels and messages of a [shunt.Queue] in a browser, and lets operators act on them.
//
//	h := dashboard.Handler(q, dashboard.Options{
//		Authenticate: dashboard.BasicAuth(map[string]dashboard.Login{
//			"ann": {Password: os.Getenv("ANN_PASSWORD"), Role: dashboard.Operator},
//		}),
//	})
//	defer h.Close()
//	http.Handle("/shunt/", h)
//
// It works under any path that ends in a slash, with or without [http.StripPrefix]: only the last element of a
// request's path counts, and all links are relative.
//
// # Safety
//
// Without [Options.Authenticate] the handler refuses all requests but those from this host to a loopback Host. Viewers
// see, operators act. What changes Redis is a POST from the handler's own pages, with a token. What cannot be undone is
// confirmed on a page that names the count, and everything that was done is in the audit of the Queue. Options.Mask
// hides payloads.
//
// # What it costs Redis
//
// A page asks Redis once, when it is loaded. While somebody has a live page open and visible, one poller for all
// browsers asks for one Overview every 2 s. While nothing moves it sends less than a command a second, and pages say
// within how long each figure was looked at. Without a visible page nothing is asked.
package dashboard
