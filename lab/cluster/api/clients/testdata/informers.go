// SPDX-License-Identifier: Apache-2.0

// Command informers follows Services, EndpointSlices, Nodes and Pods with the shared informers of client-go, and prints
// one line for each of their events: what happened, the resource, the object and its revision. After "synced" it also
// runs a controller. Once its standard input ends, it prints what its listers hold, and ends.
//
// The controller is of the usual kind: the leader, which holds a Lease, takes keys from a queue and reads from listers.
// It annotates each Service that has the label "counted" with the number of its ready endpoints, and posts an Event.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.ContentType = os.Getenv("CONTENT_TYPE") // empty: JSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	printer := &printer{out: bufio.NewWriter(os.Stdout)}
	watched := map[string]cache.SharedIndexInformer{
		"services":       factory.Core().V1().Services().Informer(),
		"endpointslices": factory.Discovery().V1().EndpointSlices().Informer(),
		"nodes":          factory.Core().V1().Nodes().Informer(),
		"pods":           factory.Core().V1().Pods().Informer(),
	}
	for resource, informer := range watched {
		if _, err := informer.AddEventHandler(printer.handler(resource)); err != nil {
			return err
		}
	}
	c := newController(client, factory)
	factory.Start(ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("%s did not sync", kind)
		}
	}
	printer.line("synced")
	go c.lead(ctx)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for resource, informer := range watched {
		for _, o := range informer.GetStore().List() {
			printer.object("list", resource, o)
		}
	}
	return nil
}

// printer prints lines, each at once and whole.
type printer struct {
	mu  sync.Mutex
	out *bufio.Writer
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
	p.out.Flush()
}

func (p *printer) object(event, resource string, o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	m := o.(metav1.Object)
	p.line("%s %s %s %s", event, resource, cache.MetaObjectToName(m), m.GetResourceVersion())
}

func (p *printer) handler(resource string) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.object("add", resource, o) },
		UpdateFunc: func(_, o any) { p.object("update", resource, o) },
		DeleteFunc: func(o any) { p.object("delete", resource, o) },
	}
}

// controller counts the ready endpoints of Services.
type controller struct {
	client   kubernetes.Interface
	factory  informers.SharedInformerFactory
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	recorder record.EventRecorder
}

func newController(client kubernetes.Interface, factory informers.SharedInformerFactory) *controller {
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	c := &controller{
		client: client, factory: factory,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "counter"}),
	}
	queue := func(o any) {
		switch o := o.(type) {
		case *corev1.Service:
			c.queue.Add(cache.MetaObjectToName(o))
		case *discoveryv1.EndpointSlice:
			c.queue.Add(cache.NewObjectName(o.Namespace, o.Labels[discoveryv1.LabelServiceName]))
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: queue, UpdateFunc: func(_, o any) { queue(o) }, DeleteFunc: queue,
	}
	for _, i := range []cache.SharedIndexInformer{
		factory.Core().V1().Services().Informer(), factory.Discovery().V1().EndpointSlices().Informer(),
	} {
		_, _ = i.AddEventHandler(handler)
	}
	return c
}

// lead works for as long as it is the leader, and ends the program when it is not any longer.
func (c *controller) lead(ctx context.Context) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "counter"}, Client: c.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "informers"},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: c.work,
			OnStoppedLeading: func() { fmt.Fprintln(os.Stderr, "the lease is lost") },
		},
	})
}

func (c *controller) work(ctx context.Context) {
	for {
		key, ended := c.queue.Get()
		if ended {
			return
		}
		if err := c.count(ctx, key); err != nil {
			fmt.Fprintln(os.Stderr, key, err)
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

func (c *controller) count(ctx context.Context, key cache.ObjectName) error {
	svc, err := c.factory.Core().V1().Services().Lister().Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && svc.Labels["counted"] == "" {
		return nil
	}
	if err != nil {
		return err
	}
	slices, err := c.factory.Discovery().V1().EndpointSlices().Lister().EndpointSlices(key.Namespace).List(
		labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: key.Name}))
	if err != nil {
		return err
	}
	ready := 0
	for _, s := range slices {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready++
			}
		}
	}
	if svc.Annotations["endpoints"] == strconv.Itoa(ready) {
		return nil
	}
	// The object of the lister may be old. Then the first update is a conflict, and the next one uses the present object.
	object := svc.DeepCopy()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, "endpoints", strconv.Itoa(ready))
		_, err := c.client.CoreV1().Services(key.Namespace).Update(ctx, object, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			fresh, getErr := c.client.CoreV1().Services(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if getErr != nil {
				return getErr
			}
			object = fresh
		}
		return err
	})
	if err == nil {
		c.recorder.Eventf(svc, corev1.EventTypeNormal, "Counted", "%d endpoints are ready", ready)
	}
	return err
}
