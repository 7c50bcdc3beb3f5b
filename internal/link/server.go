package link

// Server is what shunt holds of one Redis node.
type Server struct {
	*Node
	Data  *Link         // deliveries, takes, verdicts
	Pulse *Link         // beats, sweeps, promotes: no element ever delays a beat
	Hints *Subscription // new earliest times
}
