// The MongoDB server that tests run against: FerretDB over SQLite. scripts/build-mongodb builds it.
module stockade/mongodb

go 1.24

require github.com/FerretDB/FerretDB v1.24.2
