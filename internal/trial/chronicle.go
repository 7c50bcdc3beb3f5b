package trial

import "strings"

// Chronicle is what concerns no message, for a run that failed: all faults, and the end of the rest.
func Chronicle(es []Entry) string {
	var faults, others []string
	for _, e := range es {
		line := e.At.Format("05.000") + " " + e.text()
		switch {
		case e.Op == Fault || e.Op == Delayed:
			faults = append(faults, line)
		case e.ID == "" && e.Serial == "":
			others = append(others, line)
		}
	}
	return strings.Join(append(faults, others[max(0, len(others)-60):]...), "\n")
}
