module stand

go 1.24.0

require (
	github.com/gorilla/handlers v1.5.2
	github.com/gorilla/sessions v1.4.0
	github.com/klauspost/compress v1.18.0
)

require (
	github.com/felixge/httpsnoop v1.0.3 // indirect
	github.com/gorilla/securecookie v1.1.2 // indirect
)
