module github.com/shuntmq/shunt/daemon

go 1.25.0

require (
	github.com/gomodule/redigo v1.9.3
	github.com/oklog/ulid/v2 v2.1.2
	github.com/shuntmq/shunt v0.0.0
	golang.org/x/sync v0.22.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/shuntmq/shunt => ../
