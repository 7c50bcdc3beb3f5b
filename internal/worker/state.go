package worker

// itemState is where an item stands. The states from decided to refusedAgain are the life of its verdict.
type itemState uint8

const (
	queued   itemState = iota // to be started
	starting                  // Redis is asked whether it is still to be
	running                   // its handler is at work on the item's goroutine
	// the handler has returned, and the user's methods that its verdict depends on are at work in its place
	concluding
	judging      // its handler has lost its place to another goroutine, and its verdict is being made
	decided      // a verdict is there, to be sent
	sending      // the verdict is under way
	refused      // Redis has not executed the verdict: it is sent again
	unknown      // the verdict was sent, and no reply came: the handover finds out
	decidedAgain // the same as decided, sending and refused, of a verdict that was unknown once
	sendingAgain
	refusedAgain
	lost       // somebody else's by now; its handler's verdict will be dropped
	handedBack // the same, because it was put back from here while its handler ran: nobody wants its verdict
	gone       // no longer held
	goneAgain  // no longer held, and its verdict was unknown once
	states     // how many there are
)

// happening is what changes an item's state.
type happening uint8

const (
	ask        happening = iota // Redis is asked whether it may still be handled
	answer                      // it may
	begin                       // its handler begins
	conclude                    // its handler has returned
	leaveBe                     // its handler has lost its place
	judge                       // a verdict is there, the first or another one
	send                        // the verdict is sent
	execute                     // Redis has executed it, or found nothing to execute it on
	parted                      // nothing was changed, because it went with others: it is sent by itself
	silence                     // no reply came
	forsake                     // no reply came, and it must not be sent again
	refuse                      // Redis has refused it
	withdraw                    // the verdict was a release, which is not needed any more
	abandon                     // no verdict is sent any more
	lose                        // somebody else has the message
	giveBack                    // it was put back from here
	happenings                  // how many there are
)

// transitions is the state that follows, by state and happening; 0 where that cannot happen, else the state and 1.
var transitions = func() (t [states][happenings]itemState) {
	on := func(from itemState, h happening, to itemState) { t[from][h] = to + 1 }
	on(queued, ask, starting)
	on(starting, answer, queued)
	on(queued, begin, running)
	on(running, conclude, concluding)
	on(running, leaveBe, judging)
	for _, from := range []itemState{queued, running, concluding, judging, refused} {
		on(from, judge, decided)
	}
	on(refusedAgain, judge, decidedAgain)
	for _, v := range []struct{ decided, sending, refused, gone itemState }{
		{decided, sending, refused, gone}, {decidedAgain, sendingAgain, refusedAgain, goneAgain},
	} {
		on(v.decided, send, v.sending)
		on(v.refused, send, v.sending)
		on(v.sending, execute, v.gone)
		on(v.sending, parted, v.decided)
		on(v.sending, silence, unknown)
		on(v.sending, forsake, goneAgain)
		on(v.sending, refuse, v.refused)
		on(v.refused, withdraw, queued)
		on(v.refused, abandon, v.gone)
		on(v.decided, lose, v.gone)
		on(v.sending, lose, v.gone)
		on(v.refused, lose, v.gone)
	}
	on(unknown, send, sendingAgain)
	on(unknown, lose, goneAgain)
	for _, from := range []itemState{queued, starting, judging} {
		on(from, lose, gone)
	}
	for _, from := range []itemState{running, concluding} {
		on(from, lose, lost)
		on(from, giveBack, handedBack)
	}
	on(queued, giveBack, gone)
	on(lost, execute, gone) // its handler has returned at last
	on(handedBack, execute, gone)
	return t
}()

// move changes the state, and says whether that could happen. Its worker's mu is held. No other func writes the state.
func (it *Item) move(h happening) bool {
	to := transitions[it.state][h]
	if to == 0 {
		return false
	}
	it.state = to - 1
	return true
}

// runs says whether the handler, or what its verdict depends on, is at work and has its place.
func (it *Item) runs() bool { return it.state == running || it.state == concluding }

// atWork says whether its handler, or what its verdict depends on, is at work, whoever has the message by now.
func (it *Item) atWork() bool { return it.runs() || it.state == lost || it.state == handedBack }

// isDecided says whether a verdict is there that is to be sent now.
func (it *Item) isDecided() bool { return it.state == decided || it.state == decidedAgain }

// isRefused says whether Redis has refused the verdict, so that it waits to be sent again.
func (it *Item) isRefused() bool { return it.state == refused || it.state == refusedAgain }

// unsent says whether a verdict is there that is not under way, and may be sent.
func (it *Item) unsent() bool { return it.isDecided() || it.isRefused() }

// hasVerdict says whether a verdict is there that is not known to be executed.
func (it *Item) hasVerdict() bool { return it.state >= decided && it.state <= refusedAgain }

// inDoubt says whether the verdict was sent once and no reply came: it may have been executed.
func (it *Item) inDoubt() bool {
	return it.state >= unknown && it.state <= refusedAgain || it.state == goneAgain
}
