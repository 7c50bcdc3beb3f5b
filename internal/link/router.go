package link

// Server is what shunt holds of one Redis node.
type Server struct {
	*Node
	Data  *Link         // deliveries, takes, verdicts
	Pulse *Link         // beats, sweeps, promotes: no element ever delays a beat
	Hints *Subscription // new earliest times
}

// Router gives each channel the server that has its keys. Today one server has them all. Sentinel and Cluster come
// behind the same seam: the server of a channel is then that of the present master, or of the node which has the
// channel's slot, and may be another one from one call to the next. So a caller asks For for each step. A receiver's
// lane alone keeps its server: its lists there have to be handed over before it may go to another.
type Router struct {
	route func(channel string) *Server
}

// NewRouter returns a Router with one server behind it.
func NewRouter(server *Server) *Router { return RouteBy(func(string) *Server { return server }) }

// RouteBy returns a Router that asks a func, which gives the same server for a channel each time.
func RouteBy(route func(channel string) *Server) *Router { return &Router{route} }

// For returns the server that has the channel's keys.
func (r *Router) For(channel string) *Server { return r.route(channel) }
