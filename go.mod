module github.com/shuntmq/shunt

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/gomodule/redigo v1.9.3
	github.com/json-iterator/go v1.1.12
	github.com/modern-go/reflect2 v1.0.2
	github.com/oklog/ulid/v2 v2.1.2
	github.com/robfig/cron/v3 v3.0.1
	github.com/yuin/gopher-lua v1.1.1
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.22.0
	pgregory.net/rapid v1.3.0
)

require github.com/modern-go/concurrent v0.0.0-20180228061459-e0a39a4cb421 // indirect
