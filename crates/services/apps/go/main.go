// The app of the stack of Go's net/http: `stand PORT FOLDER`.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/handlers"
	"github.com/gorilla/sessions"
	"github.com/klauspost/compress/gzhttp"
)

var (
	text  = strings.Repeat("<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n", 60)
	start = time.Now()
	store = sessions.NewCookieStore([]byte("a secret of tests, of 32 bytes..."))
)

const minute = "public, max-age=60"

func html(w http.ResponseWriter, cacheControl, heading string) {
	if cacheControl != "" {
		w.Header().Set("Cache-Control", cacheControl)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, "%s\n%s", heading, text)
}

func page(w http.ResponseWriter, _ *http.Request) {
	html(w, minute, "<h1>page</h1>")
}

func article(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=1")
	content := bytes.NewReader([]byte("<h1>article</h1>\n" + text))
	http.ServeContent(w, r, "article.html", start, content)
}

func language(w http.ResponseWriter, r *http.Request) {
	language := "en"
	if strings.HasPrefix(r.Header.Get("Accept-Language"), "de") {
		language = "de"
	}
	w.Header().Add("Vary", "Accept-Language")
	w.Header().Set("Content-Language", language)
	html(w, minute, "<h1>language="+language+"</h1>")
}

func login(w http.ResponseWriter, r *http.Request) {
	session, _ := store.Get(r, "session")
	session.Values["user"] = r.PostFormValue("user")
	if err := session.Save(r, w); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/account", http.StatusSeeOther)
}

func account(w http.ResponseWriter, r *http.Request) {
	accountWith("")(w, r)
}

func accountWith(cacheControl string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user := "nobody"
		if session, err := store.Get(r, "session"); err == nil {
			if name, ok := session.Values["user"].(string); ok {
				user = name
			}
		}
		html(w, cacheControl, "<h1>user="+user+"</h1>")
	}
}

func form(w http.ResponseWriter, r *http.Request) {
	var token string
	if cookie, err := r.Cookie("visitor"); err == nil {
		token = cookie.Value
	} else {
		bytes := make([]byte, 8)
		rand.Read(bytes)
		token = hex.EncodeToString(bytes)
		http.SetCookie(w, &http.Cookie{Name: "visitor", Value: token, Path: "/"})
	}
	html(w, minute, "<input value='token="+token+"'>")
}

func until(w http.ResponseWriter, r *http.Request) {
	moment, _ := strconv.ParseInt(r.PathValue("moment"), 10, 64)
	if time.Now().Unix() >= moment {
		http.NotFound(w, r)
		return
	}
	html(w, "public, max-age=1", "<h1>still here</h1>")
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, http.StatusText(code), code) }
}

func after(delay func(*http.Request) time.Duration, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(delay(r)):
			next(w, r)
		case <-r.Context().Done():
		}
	}
}

func seconds(r *http.Request) time.Duration {
	seconds, _ := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	return time.Duration(seconds * float64(time.Second))
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var sum uint32
	for _, b := range body {
		sum += uint32(b)
	}
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintf(w, "method=%s length=%d sum=%d\n", r.Method, len(body), sum)
}

func static(folder string) http.Handler {
	files := http.StripPrefix("/static/", http.FileServer(http.Dir(folder)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lifetime := minute
		if strings.HasSuffix(r.URL.Path, ".css") {
			lifetime = "public, max-age=1"
		}
		w.Header().Set("Cache-Control", lifetime)
		files.ServeHTTP(w, r)
	})
}

func main() {
	port, folder := os.Args[1], os.Args[2]
	mux := http.NewServeMux()
	mux.HandleFunc("/page", page)
	mux.HandleFunc("/article", article)
	mux.HandleFunc("/language", language)
	mux.HandleFunc("POST /login", login)
	mux.HandleFunc("/account", account)
	expired := func(*http.Request) time.Duration { return 700 * time.Millisecond }
	mux.HandleFunc("/account/expired", after(expired, accountWith("max-age=0")))
	mux.HandleFunc("/form", form)
	mux.HandleFunc("/until/{moment}", until)
	mux.HandleFunc("/gone", status(http.StatusGone))
	mux.HandleFunc("/forbidden", status(http.StatusForbidden))
	mux.HandleFunc("/error", status(http.StatusInternalServerError))
	mux.Handle("/old", http.RedirectHandler("/page", http.StatusFound))
	mux.HandleFunc("/slow", after(seconds, page))
	mux.HandleFunc("/report", after(seconds, accountWith("no-store")))
	mux.HandleFunc("/echo", echo)
	mux.Handle("/static/", static(folder+"/static"))

	access, err := os.OpenFile(folder+"/access.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	line := func(out io.Writer, p handlers.LogFormatterParams) {
		fmt.Fprintf(out, "%s %s %d %s\n", p.Request.Method, p.URL.RequestURI(), p.StatusCode, p.Request.Proto)
	}
	logged := handlers.CustomLoggingHandler(access, gzhttp.GzipHandler(mux), line)
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: logged, IdleTimeout: time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	log.Fatal(server.ListenAndServe())
}
