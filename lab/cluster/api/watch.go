// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// bookmarkEvery is after how many changes of other objects a client gets a bookmark, from which it can resume.
const bookmarkEvery = 1000

// watcher is one watch of one client.
type watcher struct {
	frames  *frames
	view    view
	which   selection
	cursor  cursor
	marks   bool     // the client wants bookmarks
	reached uint64   // the revision that the client knows
	client  *Watches // nil: nobody follows the client's watches
}

// watch sends the changes of a resource until the client leaves, its time is up or the server closes.
func (s *Server) watch(w http.ResponseWriter, r *request, o *metav1.ListOptions, which selection) error {
	view, err := viewOf(r, true)
	if err != nil {
		return err
	}
	from, err := parseRevision(o.ResourceVersion)
	if err != nil {
		return err
	}
	ctx, cancel := s.watchContext(r, o)
	defer cancel()
	a := &watcher{frames: newFrames(w, view.format), view: view, which: which, marks: o.AllowWatchBookmarks}
	a.client, _ = r.Context().Value(watchesKey{}).(*Watches)
	defer a.client.ended(a)
	if err := a.run(ctx, from, o); err != nil && !errors.Is(err, errGone) {
		_ = a.frames.send(watch.Error, statusOf(err))
		_ = a.frames.flush() // who is gone by now needs no answer
	}
	return nil
}

func (s *Server) watchContext(r *request, o *metav1.ListOptions) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stopped := context.AfterFunc(s.ctx, cancel)
	if ptr.Deref(o.TimeoutSeconds, 0) > 0 { // 0 is the server's choice
		limited, cancelLimited := context.WithTimeout(ctx, time.Duration(*o.TimeoutSeconds)*time.Second)
		return limited, func() { cancelLimited(); stopped(); cancel() }
	}
	return ctx, func() { stopped(); cancel() }
}

func (a *watcher) run(ctx context.Context, from uint64, o *metav1.ListOptions) error {
	r := a.view.resource
	// A watch without a revision begins with the present objects. sendInitialEvents also asks for a mark after them.
	asked := ptr.Deref(o.SendInitialEvents, false)
	if asked || from == 0 && o.SendInitialEvents == nil {
		objs, revision := r.list()
		if err := reachable(o, revision); err != nil {
			return err
		}
		from = revision
		if err := a.existing(objs, asked && a.marks, revision); err != nil {
			return err
		}
	} else if from == 0 {
		_, from = r.list()
	}
	if err := a.client.remember(from); err != nil {
		return err
	}
	a.reached = from
	var err error
	if a.cursor, err = r.follow(from); err != nil {
		return err
	}
	return a.follow(ctx)
}

func (a *watcher) existing(objs []store.Object, mark bool, revision uint64) error {
	for _, o := range objs {
		if a.which.matches(o) {
			if err := a.frames.send(watch.Added, a.view.one(o)); err != nil {
				return err
			}
		}
	}
	if mark {
		return a.bookmark(revision, true)
	}
	return nil
}

// follow sends changes as they come.
func (a *watcher) follow(ctx context.Context) error {
	for {
		events, err := a.cursor.next()
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := a.event(e); err != nil {
				return err
			}
		}
		if a.cursor.revision() >= a.reached+bookmarkEvery {
			if err := a.bookmark(a.cursor.revision(), false); err != nil {
				return err
			}
		}
		if err := a.frames.flush(); err != nil {
			return err
		}
		a.client.reached(a)
		select {
		case <-ctx.Done():
			if a.cursor.revision() > a.reached { // so that it resumes where it left off
				return a.bookmark(a.cursor.revision(), false)
			}
			return nil
		case <-a.cursor.changed():
		}
	}
}

// event sends a change as a selector shows it: what stops matching is deleted, what begins to match is added.
func (a *watcher) event(e store.Event) error {
	was := e.Type != watch.Added && a.which.matches(e.Old)
	is := e.Type != watch.Deleted && a.which.matches(e.Object)
	kind, obj := watch.Modified, e.Object
	switch {
	case is && was:
	case is:
		kind = watch.Added
	case was:
		if e.Type != watch.Deleted {
			obj = e.Old
		}
		kind, obj = watch.Deleted, copyOf(obj)
		obj.SetResourceVersion(strconv.FormatUint(e.Revision, 10))
	default:
		return nil
	}
	a.reached = e.Revision
	return a.frames.send(kind, a.view.one(obj))
}

// bookmark sends a revision to the client; end marks the end of the initial objects.
func (a *watcher) bookmark(revision uint64, end bool) error {
	a.reached = revision
	if !a.marks {
		return nil
	}
	rv := strconv.FormatUint(revision, 10)
	if a.view.as == asTable {
		return a.frames.send(watch.Bookmark, a.view.table(nil, rv))
	}
	o := a.view.resource.new()
	o.SetResourceVersion(rv)
	if end {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if err := a.frames.send(watch.Bookmark, a.view.one(o)); err != nil {
		return err
	}
	return a.frames.flush()
}

// frames writes watch events to a client.
type frames struct {
	w        *http.ResponseController
	out      interface{ Write([]byte) (int, error) }
	object   runtime.Encoder // of objects
	envelope runtime.Encoder // of the event around an object: of protobuf without the prefix that objects have
}

// errGone reports that the client has stopped reading.
var errGone = errors.New("the client is gone")

// newFrames prepares the answer. The first flush, after the beginning of the watch is known, sends the header.
func newFrames(w http.ResponseWriter, f format) *frames {
	contentType := f.MediaType
	if !f.EncodesAsText {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	return &frames{
		w: http.NewResponseController(w), out: f.StreamSerializer.Framer.NewFrameWriter(w),
		object: f.Serializer, envelope: f.StreamSerializer.Serializer,
	}
}

func (f *frames) send(t watch.EventType, obj runtime.Object) error {
	var body, frame bytes.Buffer
	if err := f.object.Encode(obj, &body); err != nil {
		return err
	}
	e := &metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: body.Bytes()}}
	if err := f.envelope.Encode(e, &frame); err != nil {
		return err
	}
	if _, err := f.out.Write(frame.Bytes()); err != nil {
		return errGone
	}
	return nil
}

func (f *frames) flush() error {
	if err := f.w.Flush(); err != nil {
		return errGone
	}
	return nil
}
