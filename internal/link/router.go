package link

// Server is what shunt holds of one Redis node.
type Server struct {
	*Node
	Data  *Link         // deliveries, takes, verdicts
	Pulse *Link         // beats, sweeps, promotes: no element ever delays a beat
	Hints *Subscription // new earliest times
}

// Today there is one server behind a Router, and For returns it for every channel. Sentinel and Cluster come behind the
// same seam. With Sentinel, For returns the server of the present master. With Cluster, it returns that of the node
// which has the channel's slot. So For may return another server from one call to the next. A caller asks For for each
// step, and keeps no Server across steps. A step that ends as MOVED or READONLY asks again.
type Router struct {
	server *Server
}

// NewRouter returns a Router with one server behind it.
func NewRouter(server *Server) *Router { return &Router{server: server} }

// For returns the server that has the channel's keys.
func (r *Router) For(channel string) *Server { return r.server }
