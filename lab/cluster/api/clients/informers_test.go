// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
)

const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: nginx, ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop, labels: {counted: "yes"}}
spec: {selector: {app: shop}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {selector: {app: other}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: gone}
spec: {selector: {app: other}, ports: [{port: 80}]}
`

// The ways in which clients of one release follow a resource: client-go with its defaults streams the initial objects
// (WatchList) as JSON; programs of Kubernetes itself use protobuf, and older ones list first.
var ways = map[string][]string{
	"streamed": nil,
	"listed":   {"KUBE_FEATURE_WatchListClient=false", "CONTENT_TYPE=application/vnd.kubernetes.protobuf"},
}

func TestInformers(t *testing.T) {
	for name, env := range ways {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, env...)
			w.apply(shop)
			for w.read() != "synced" {
			}
			w.follows()
			w.wantStart(name == "streamed")

			w.count(2)
			w.scale(4)
			w.count(4)
			w.follows()

			w.resumes()
			w.relists()
			w.resumesFromABookmark()

			w.scale(1)
			w.count(1)
			w.follows()
			if listed := w.end(); !maps.Equal(listed, w.stored()) {
				t.Errorf("the listers hold %v, want %v", listed, w.stored())
			}
			if events := strings.Join(w.server.Events(), "\n"); !strings.Contains(events, "4 endpoints are ready") {
				t.Errorf("no Event of the controller:\n%s", events)
			}
		})
	}
}

func (w *world) apply(text string) {
	w.Helper()
	objects, err := manifest.Decode("manifest", []byte(text))
	if err != nil {
		w.Fatal(err)
	}
	if err := w.cluster.Store().Apply(objects...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) scale(replicas int) {
	w.Helper()
	w.apply(strings.Replace(strings.Split(shop, "---")[0], "replicas: 2", fmt.Sprint("replicas: ", replicas), 1))
}

// count waits until the controller has counted the endpoints of the Service shop.
func (w *world) count(want int) {
	w.Helper()
	for e, err := range w.cluster.Store().Watch(w.ctx, store.KindService) {
		if err != nil {
			w.Fatal(err)
		}
		if e.Object.GetName() == "shop" && e.Object.GetAnnotations()["endpoints"] == fmt.Sprint(want) {
			return
		}
	}
	w.Fatalf("the controller did not count %d endpoints before the end of the test", want)
}

// wantStart checks how the informers have begun.
func (w *world) wantStart(streamed bool) {
	w.Helper()
	begun := map[string]int{}
	for _, r := range w.requests() {
		if r.whole() && r.query.Has("watch") == streamed {
			begun[r.resource]++
		}
	}
	for resource := range kinds {
		if begun[resource] != 1 {
			w.Errorf("the %s were requested %d times, want once (streamed: %t)", resource, begun[resource], streamed)
		}
	}
}

// resumes breaks the watches. The informers continue where they were.
func (w *world) resumes() {
	w.Helper()
	answer := w.watches.Break()
	w.change("while broken")
	w.requests()
	answer(0)
	w.follows()
	w.wantWhole(false)
}

// relists breaks the watches and forgets the changes meanwhile, a deletion among them. The informers begin again.
func (w *world) relists() {
	w.Helper()
	answer := w.watches.Break()
	if err := w.cluster.Store().Delete(store.KindService, "default", "gone"); err != nil {
		w.Fatal(err)
	}
	w.change("while forgotten")
	w.requests()
	answer(w.cluster.Store().Snapshot().Revision)
	w.follows()
	w.wantWhole(true)
}

// resumesFromABookmark makes so many changes of a Service that the informers of other kinds get a bookmark, and then
// breaks the watches and forgets most of the changes.
func (w *world) resumesFromABookmark() {
	w.Helper()
	const changes = 1500
	for i := range changes {
		annotate[*corev1.Service](w, "default", "other", fmt.Sprint(i))
	}
	newest := w.cluster.Store().Snapshot().Revision
	if err := w.watches.Sent(w.ctx, newest); err != nil {
		w.Fatal(err)
	}
	answer := w.watches.Break()
	w.change("after the bookmark")
	w.requests()
	answer(newest - changes/2)
	w.follows()
	w.wantWhole(false)
}

// change changes an object of each kind.
func (w *world) change(to string) {
	w.Helper()
	pod := w.cluster.Store().Snapshot().Pods[0]
	annotate[*corev1.Pod](w, pod.Namespace, pod.Name, to)
	annotate[*corev1.Node](w, "", "n1", to)
	annotate[*corev1.Service](w, "default", "other", to) // and so its EndpointSlices
}

func annotate[T store.Object](w *world, namespace, name, to string) {
	w.Helper()
	err := store.Update(w.cluster.Store(), namespace, name, func(o T) {
		o.SetAnnotations(map[string]string{"changed": to})
	})
	if err != nil {
		w.Fatal(err)
	}
}

// wantWhole waits until each informer has begun again, and checks whether it has requested all objects.
func (w *world) wantWhole(want bool) {
	w.Helper()
	whole := map[string]bool{}
	for begun := 0; begun < len(kinds); {
		for _, r := range w.requests() {
			whole[r.resource] = whole[r.resource] || r.whole()
		}
		begun = 0
		for resource := range kinds {
			if is, asked := whole[resource]; is && !want {
				w.Errorf("all %s were requested again", resource)
			} else if asked && is == want || is {
				begun++
			}
		}
		if begun == len(kinds) {
			return
		}
		select {
		case <-w.more:
		case <-w.ctx.Done():
			w.Fatalf("not all informers have begun again (all objects: %t): %v", want, whole)
		}
	}
}
