package store

// The scripts of package recur.
var (
	RecurSet  = script("recur_set")
	RecurFire = script("ids", "recur_fire")
)
