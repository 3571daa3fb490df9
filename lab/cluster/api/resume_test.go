// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/viplab/viplab/lab/cluster/store"
)

// mirror follows a watch as an informer does, and fails if an event does not fit what it knows: an object that is added
// twice, one that changes or goes without being there, a revision that goes back. It ends at an object of the name
// last.
type mirror struct {
	c       *client
	path    string
	known   map[string]string // revisions of objects by name
	at      uint64
	resumes int
}

// follow reads some events, or until the end of all, and tells whether that has come.
func (m *mirror) follow(events int) (bool, error) {
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"1"}, "resourceVersion": {strconv.FormatUint(m.at, 10)}}
	s := m.c.watch(m.path + "&" + query.Encode())
	defer s.resp.Body.Close()
	for range events {
		e, ok := s.next()
		if !ok {
			return false, fmt.Errorf("the watch has ended")
		}
		if err := m.take(e); err != nil {
			return false, err
		}
		if e.Object.Name == "last" {
			return true, nil
		}
	}
	m.resumes++
	return false, nil
}

func (m *mirror) take(e event) error {
	revision, err := strconv.ParseUint(e.Object.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	if revision <= m.at && e.Type != watch.Bookmark || revision < m.at {
		return fmt.Errorf("%s %s is at %d, after %d", e.Type, e.Object.Name, revision, m.at)
	}
	m.at = revision
	_, known := m.known[e.Object.Name]
	switch {
	case e.Type == watch.Added && !known, e.Type == watch.Modified && known:
		m.known[e.Object.Name] = e.Object.ResourceVersion
	case e.Type == watch.Deleted && known:
		delete(m.known, e.Object.Name)
	case e.Type != watch.Bookmark:
		return fmt.Errorf("%s %s, which is there: %t", e.Type, e.Object.Name, known)
	}
	return nil
}

// Watchers that break off at any moment and resume from the last revision they have seen, while others write, end with
// exactly what is there: nothing is lost and nothing comes twice.
func TestResume(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newClient(t, store.Config{}, newNode("n1"))
			start := c.store.Snapshot().Revision
			mirrors := []*mirror{
				{c: c, path: "/api/v1/services?"},
				{c: c, path: "/api/v1/services?labelSelector=x"},
				{c: c, path: "/api/v1/services?labelSelector=!x"},
				{c: c, path: "/api/v1/services?fieldSelector=spec.clusterIP!=None"},
			}
			var readers, writers sync.WaitGroup
			for i, m := range mirrors {
				m.known, m.at = map[string]string{}, start
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				readers.Go(func() {
					for {
						done, err := m.follow(1 + random.IntN(5))
						if err != nil {
							t.Errorf("%s: %v", m.path, err)
							return
						}
						if done {
							return
						}
					}
				})
			}
			for i := range uint64(3) {
				writers.Go(func() { scribble(t, c.store, rand.New(rand.NewPCG(seed, 100+i)), 60) })
			}
			writers.Wait()
			// It matches every selector in turn, and ends every mirror.
			for _, labels := range [][]string{nil, {"x"}} {
				c.apply(newService("last", labels...))
			}
			readers.Wait()
			for _, m := range mirrors {
				m.compare(t)
			}
		})
	}
}

// scribble makes random changes, some of which fail.
func scribble(t *testing.T, s *store.Store, random *rand.Rand, changes int) {
	for range changes {
		name := fmt.Sprint("s", random.IntN(6))
		svc := newService(name)
		if random.IntN(2) == 0 {
			svc = newService(name, "x")
		}
		var err error
		switch random.IntN(3) {
		case 0:
			err = s.Delete(store.KindService, "default", name)
		default:
			svc.Spec.SessionAffinity = []corev1.ServiceAffinity{corev1.ServiceAffinityNone,
				corev1.ServiceAffinityClientIP}[random.IntN(2)]
			err = s.Apply(svc)
		}
		if err != nil {
			t.Log(err)
		}
	}
}

// compare lists what the mirror has followed.
func (m *mirror) compare(t *testing.T) {
	t.Helper()
	got := m.known
	delete(got, "last")
	want := map[string]string{}
	for _, s := range into[corev1.ServiceList](m.c.get(m.path).want(200)).Items {
		if s.Name != "last" {
			want[s.Name] = s.ResourceVersion
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: the watch ends with %v, the list is %v", m.path, got, want)
	}
	if m.resumes == 0 {
		t.Errorf("%s: never resumed: the test proves nothing", m.path)
	}
}
