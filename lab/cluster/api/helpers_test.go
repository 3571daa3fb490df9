// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// patience bounds what should take no time at all, on the slowest machine.
const patience = 60 * time.Second

// client is a client of a server of its own.
type client struct {
	t      testing.TB
	store  *store.Store
	server *Server
	url    string
	accept string // of every request; empty for none
	ctx    context.Context
}

func newClient(t testing.TB, c store.Config, objs ...store.Object) *client {
	t.Helper()
	state := store.New(c)
	if err := state.Apply(objs...); err != nil {
		t.Fatal(err)
	}
	s := New(state)
	h := httptest.NewServer(s)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() {
		cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		h.CloseClientConnections()
		h.Close()
	})
	return &client{t: t, store: state, server: s, url: h.URL, ctx: ctx}
}

// response is what came back.
type response struct {
	t      testing.TB
	code   int
	header http.Header
	body   []byte
}

func (c *client) start(method, path, contentType, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.server.Token())
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if c.accept != "" {
		r.Header.Set("Accept", c.accept)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c *client) do(method, path, contentType, body string) response {
	c.t.Helper()
	resp := c.start(method, path, contentType, body)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response{c.t, resp.StatusCode, resp.Header, data}
}

func (c *client) get(path string) response {
	c.t.Helper()
	return c.do("GET", path, "", "")
}

func (c *client) post(path, body string) response {
	c.t.Helper()
	return c.do("POST", path, "application/yaml", body)
}

// want checks the status code.
func (a response) want(code int) response {
	a.t.Helper()
	if a.code != code {
		a.t.Fatalf("got %d, want %d: %s", a.code, code, a.body)
	}
	return a
}

// says checks that the response is a Status with a reason and a message that contains some words.
func (a response) says(code int, reason metav1.StatusReason, words string) {
	a.t.Helper()
	a.want(code)
	s := into[metav1.Status](a)
	if s.Kind != "Status" || s.Status != metav1.StatusFailure || int(s.Code) != code || s.Reason != reason ||
		!strings.Contains(s.Message, words) {
		a.t.Errorf("got %s, want reason %s and %q", a.body, reason, words)
	}
}

// into decodes a response, JSON or protobuf as its content type says.
func into[T any](a response) *T {
	a.t.Helper()
	return decodeInto[T](a.t, a.header.Get("Content-Type"), a.body)
}

func decodeInto[T any](t testing.TB, contentType string, data []byte) *T {
	t.Helper()
	out := new(T)
	if strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) {
		if _, _, err := mediaTypes()[2].Serializer.Decode(data, nil, any(out).(runtime.Object)); err != nil {
			t.Fatalf("%v: %q", err, data)
		}
		return out
	}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return out
}

// stream is a watch as a client sees it.
type stream struct {
	t    testing.TB
	resp *http.Response
	in   *bufio.Reader
}

func (c *client) watch(path string) *stream {
	c.t.Helper()
	resp := c.start("GET", path, "", "")
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		c.t.Fatalf("watch %s: %d: %s", path, resp.StatusCode, data)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	return &stream{c.t, resp, bufio.NewReader(resp.Body)}
}

// event is a watch event with what matters of its object.
type event struct {
	Type   watch.EventType
	Object metav1.PartialObjectMetadata
	raw    []byte
}

// next reads an event, false at the end of the stream.
func (s *stream) next() (event, bool) {
	s.t.Helper()
	var e metav1.WatchEvent
	contentType := s.resp.Header.Get("Content-Type")
	if contentType == "application/vnd.kubernetes.protobuf;stream=watch" {
		var size uint32
		if err := binary.Read(s.in, binary.BigEndian, &size); err == io.EOF {
			return event{}, false
		} else if err != nil {
			s.t.Fatal(err)
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(s.in, frame); err != nil {
			s.t.Fatal(err)
		}
		if err := e.Unmarshal(frame); err != nil {
			s.t.Fatalf("%v: %q", err, frame)
		}
	} else {
		line, err := s.in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return event{}, false
		}
		if err != nil {
			s.t.Fatalf("%v: %q", err, line)
		}
		if err := json.Unmarshal(line, &e); err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
	}
	out := event{Type: watch.EventType(e.Type), raw: e.Object.Raw}
	if contentType == "application/json" {
		out.Object = *decodeInto[metav1.PartialObjectMetadata](s.t, contentType, e.Object.Raw)
		return out, true
	}
	obj, _, err := mediaTypes()[2].Serializer.Decode(e.Object.Raw, nil, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if o, ok := obj.(store.Object); ok {
		out.Object = *metaOf(o)
	}
	return out, true
}

// want reads events and compares each with "TYPE name".
func (s *stream) want(lines ...string) event {
	s.t.Helper()
	var last event
	for _, want := range lines {
		e, ok := s.next()
		if !ok {
			s.t.Fatalf("the watch has ended, want %s", want)
		}
		if got := string(e.Type) + " " + e.Object.Name; got != want {
			s.t.Fatalf("got %s, want %s: %s", got, want, e.raw)
		}
		last = e
	}
	return last
}

// wantEnd checks that the watch is over.
func (s *stream) wantEnd() {
	s.t.Helper()
	if e, ok := s.next(); ok {
		s.t.Fatalf("got %s %s, want the end of the watch", e.Type, e.Object.Name)
	}
}

func (c *client) apply(objs ...store.Object) {
	c.t.Helper()
	if err := c.store.Apply(objs...); err != nil {
		c.t.Fatal(err)
	}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func newService(name string, labels ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, l := range labels {
		metav1.SetMetaDataLabel(&s.ObjectMeta, l, "yes")
	}
	return s
}

func newPod(name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "web:1"}}},
	}
}

// run reports that a pod is ready at an address.
func (c *client) run(pod, ip string) {
	c.t.Helper()
	if err := store.UpdateStatus(c.store, "default", pod, store.ReportRunning(true, netip.MustParseAddr(ip))); err != nil {
		c.t.Fatal(err)
	}
}

// changed returns the revision at which an object of a kind last changed.
func (c *client) changed(kind store.Kind) string {
	c.t.Helper()
	events, err := c.store.EventsSince(0)
	if err != nil {
		c.t.Fatal(err)
	}
	var last uint64
	for _, e := range events {
		if e.Kind == kind {
			last = e.Revision
		}
	}
	return strconv.FormatUint(last, 10)
}
