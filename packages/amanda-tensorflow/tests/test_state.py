"""What holds state in a session is shared with tools that look, and random streams go on."""

from __future__ import annotations

import contextlib
import logging

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import FORWARD, Insert, Record

v1 = tf.compat.v1


def values(found):
    return tf.nest.map_structure(lambda value: np.asarray(value).tolist(), found)


@pytest.fixture(params=[2, 1])
def control_flow(request):
    """The version of control flow that graphs are built with."""
    (v1.enable_control_flow_v2 if request.param == 2 else v1.disable_control_flow_v2)()
    yield request.param
    v1.enable_control_flow_v2()


def plain_then_watched(program, where=None, feed=None):
    """What a program gives: plain, twice under a tool, plain again."""
    found = []
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        first, fetches = program()
        with v1.Session(config=v1.ConfigProto(operation_timeout_in_ms=20000)) as session:
            for operation in first:
                session.run(operation)
            for watched in (False, True, True, False):
                tool = Record(at=where) if where and watched else None
                with amanda.apply(tool) if tool else contextlib.nullcontext():
                    found.append([values(session.run(fetch)) for fetch in fetches])
                assert tool is None or tool.ran
    return found


# What is kept under the name of its node


def queue(make):
    def program():
        queue = make()
        elements = tf.constant([3, 1, 2, 7, 5, 6, 4, 9], tf.int64)
        return [queue.enqueue_many([elements])], [queue.dequeue() * 2, queue.size()]

    return program


def static_table():
    initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
    table = tf.lookup.StaticHashTable(initializer, -1.0)
    return [v1.tables_initializer()], [table.lookup(tf.constant(["b", "c"])) + 1.0, table.size()]


def table_that_grows():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    key = tf.constant([1, 2], tf.int64)
    with tf.control_dependencies([table.insert(key, table.lookup(key) + 1)]):
        return [], [table.lookup(key) * 10]


def dense_table():
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.float32, -1.0, empty_key=0, deleted_key=-9
    )
    return [table.insert([1, 2], [1.0, 2.0])], [table.lookup(tf.constant([1, 3], tf.int64)) * 2.0]


def one_shot():
    return [], [v1.data.make_one_shot_iterator(tf.data.Dataset.range(9)).get_next() * 2]


def iterator():
    made = v1.data.make_initializable_iterator(tf.data.Dataset.range(9).shuffle(9, seed=1))
    return [made.initializer], [made.get_next() * 2]


def accumulator():
    made = v1.ConditionalAccumulator(tf.float32, [2])
    gradients = [made.apply_grad([value, 2.0], local_step=9) for value in (1.0, 3.0)]
    with tf.control_dependencies(gradients):
        return [], [made.take_grad(2) * 2.0]


def sparse_accumulator():
    made = v1.SparseConditionalAccumulator(tf.float32)
    apply = made.apply_grad([0, 2], [1.0, 2.0])
    return [apply], [made.num_accumulated()]


def staging_area():
    put = tf.raw_ops.Stage(values=[tf.constant(1.0)], container="", shared_name="here")
    return [put, put], [tf.raw_ops.StageSize(dtypes=[tf.float32], shared_name="here")]


def reader():
    names = v1.FIFOQueue(8, [tf.string])
    reader = v1.IdentityReader()
    return [names.enqueue_many([["a", "b", "c", "d", "e", "f"]])], [
        reader.read(names)[1] + "!",
        reader.num_records_produced(),
    ]


def shuffled_batches():
    queue = v1.RandomShuffleQueue(20, 2, [tf.int32], [[]], seed=5)
    return [queue.enqueue_many([list(range(20))])], [queue.dequeue_many(3) + 1]


def variables():
    resource = v1.get_variable("r", initializer=1.0, use_resource=True)
    reference = v1.get_variable("v", initializer=1.0, use_resource=False)
    return [v1.global_variables_initializer()], [
        resource.assign_add(1.0),
        reference.assign_add(2.0),
    ]


def queue_in_a_branch():
    queue = v1.FIFOQueue(9, [tf.int32], [[]])
    first = queue.enqueue_many([list(range(9))])
    return [first], [tf.cond(queue.size() > 2, lambda: queue.dequeue() + 1, lambda: -1)]


def queue_in_a_loop():
    queue = v1.FIFOQueue(9, [tf.int32], [[]])
    first = queue.enqueue_many([list(range(9))])
    loop = tf.while_loop(lambda i, s: i < 2, lambda i, s: (i + 1, s + queue.dequeue()), [0, 0])
    return [first], [loop[1]]


STATE = {
    "FIFOQueue": queue(lambda: v1.FIFOQueue(9, [tf.int64], [[]])),
    "PaddingFIFOQueue": queue(lambda: v1.PaddingFIFOQueue(9, [tf.int64], [[]])),
    "RandomShuffleQueue": queue(lambda: v1.RandomShuffleQueue(9, 0, [tf.int64], [[]], seed=3)),
    **{
        program.__name__: program
        for program in [
            static_table,
            table_that_grows,
            dense_table,
            one_shot,
            iterator,
            accumulator,
            sparse_accumulator,
            staging_area,
            reader,
            shuffled_batches,
            variables,
        ]
    },
}


@pytest.mark.parametrize("where", FORWARD)
@pytest.mark.parametrize("name", STATE)
def test_state_is_shared_with_a_tool_that_looks(name, where):
    assert plain_then_watched(STATE[name], where) == plain_then_watched(STATE[name])


@pytest.mark.parametrize("where", FORWARD)
@pytest.mark.parametrize("program", [queue_in_a_branch, queue_in_a_loop])
def test_so_is_state_that_is_used_in_control_flow(program, where, control_flow):
    assert plain_then_watched(program, where) == plain_then_watched(program)


@pytest.mark.parametrize("where", FORWARD)
def test_a_tensor_that_a_session_keeps_is_found_by_its_handle(where):
    with tf.Graph().as_default(), v1.Session() as session, amanda.apply(Record(at=where)):
        handle = session.run(v1.get_session_handle(tf.constant(2.0) * 3.0)).handle
        given, kept = v1.get_session_tensor(handle, tf.float32)
        assert session.run(kept + 1.0, {given: handle}) == 7.0


# Random streams


def data():
    return v1.placeholder_with_default([3.0, 1.0, 2.0], [3])


def shared_shape():
    shape = tf.shape(data() * 2.0)
    return tf.random.uniform(shape) + tf.random.normal(shape)


def fed():
    return v1.random_shuffle(data())


def of_each_other():
    return tf.random.shuffle(tf.random.uniform([5]) * 2.0)


def directly_of_each_other():
    return tf.random.shuffle(tf.random.uniform([5]))


def after_an_assignment():
    with tf.control_dependencies([data() + 1.0]):
        return tf.random.uniform([3])


def candidates():
    return v1.nn.uniform_candidate_sampler([[1, 2]], 2, 3, True, 20, seed=4)[0]


def in_a_branch_with_an_argument():
    x = data()
    return tf.cond(x[0] > 0.0, lambda: tf.random.shuffle(x), lambda: x)


def in_a_case():
    x = data()
    branches = [lambda: tf.zeros([3]), lambda: tf.random.uniform(tf.shape(x))]
    return tf.switch_case(tf.cast(x[1], tf.int32), branches)


def in_a_loop():
    def body(i, total):
        return i + 1, total + tf.random.uniform([2])

    return tf.while_loop(lambda i, _: i < 3, body, [0, tf.zeros([2])])[1]


def in_nested_control_flow():
    def body(i, total):
        return i + 1, total + tf.cond(i > 0, lambda: tf.random.normal([]), lambda: 0.0)

    return tf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]


def in_a_mapped_function():
    return tf.map_fn(lambda x: x + tf.random.uniform([]), data())


def in_a_function():
    return tf.function(lambda x: x + tf.random.uniform([3]))(data())


def in_a_branch_of_a_function():
    @tf.function
    def draw(x):
        return tf.cond(x[0] > 0.0, lambda: x + tf.random.uniform([3]), lambda: x)

    return draw(data())


STREAMS = {
    "uniform": lambda: tf.random.uniform([2]),
    "integers": lambda: tf.random.uniform([2], 0, 99, tf.int32),
    "truncated": lambda: tf.random.truncated_normal(tf.shape(data())),
    "gamma": lambda: tf.random.gamma([2], data()),
    "poisson": lambda: tf.random.poisson([2], data()),
    "categorical": lambda: tf.random.categorical([tf.nn.softmax(data())], 4),
    "dropout": lambda: tf.nn.dropout(data() * 2.0, 0.5),
    "shuffle": lambda: tf.random.shuffle(tf.range(6)),
    "seeded": lambda: tf.random.uniform([2], seed=7),
    **{
        program.__name__: program
        for program in [
            shared_shape,
            fed,
            of_each_other,
            directly_of_each_other,
            after_an_assignment,
            candidates,
        ]
    },
}


@pytest.mark.parametrize("where", FORWARD)
@pytest.mark.parametrize("name", STREAMS)
def test_streams_go_on_under_a_tool_that_looks(name, where):
    def program():
        return [], [STREAMS[name]()]

    assert plain_then_watched(program, where) == plain_then_watched(program)


@pytest.mark.parametrize("where", FORWARD)
@pytest.mark.parametrize("program", [in_a_branch_with_an_argument, in_a_case])
def test_so_do_those_of_branches(program, where, control_flow):
    def fetches():
        return [], [program()]

    assert plain_then_watched(fetches, where) == plain_then_watched(fetches)


def behind(node, nodes):
    """List what a node of a graph that was run waits for, one after another."""
    waiting, found = [node], []
    while waiting:
        found.append(waiting.pop())
        waiting += (name.lstrip("^").partition(":")[0] for name in nodes[found[-1]])
    return found


def looks(*tensors) -> None:
    """Return nothing, which a driver knows beforehand."""


def sampler():
    labels = tf.constant([[1], [2]], tf.int64)  # which cannot be replaced for one of two
    a, _ = (tf.random.log_uniform_candidate_sampler(labels, 1, 3, True, 9, s) for s in (1, 2))
    return a[0]


@pytest.mark.parametrize(
    ("program", "type", "name"),
    [
        (sampler, "LogUniformCandidateSampler", "Sampler"),
        (lambda: v1.get_variable("held", initializer=1.0) * 2.0, "VarHandleOp", "held/"),
        (
            lambda: v1.get_variable("held", initializer=1.0, use_resource=False) * 2.0,
            "VariableV2",
            "held/",
        ),
    ],
    ids=["sampler", "variable", "reference_variable"],
)
def test_routines_after_what_holds_state_wait_for_those_before_it(program, type, name):
    metadata = v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True)
    with tf.Graph().as_default(), v1.Session() as session:
        fetch = program()
        session.run(v1.global_variables_initializer())
        with amanda.apply(Insert(FORWARD, ["Const", type], looks)):
            session.run(fetch, options=options, run_metadata=metadata)
    ran = [node for graph in metadata.partition_graphs for node in graph.node]
    routines = [n.name for n in ran if "PyFunc" in n.op and name in n.name]
    before, after = sorted(routines, key=lambda name: "after" in name)
    assert before in behind(after, {node.name: node.input for node in ran})


@pytest.mark.parametrize(
    "program",
    [
        in_a_loop,
        in_nested_control_flow,
        in_a_mapped_function,
        in_a_function,
        in_a_branch_of_a_function,
    ],
)
def test_a_stream_that_begins_anew_is_noted(program, caplog, control_flow):
    with caplog.at_level(logging.WARNING, "amanda_tensorflow"):
        plain_then_watched(lambda: ([], [program()]), "insert_before_op")
    assert any("random streams begin anew in a session" in note for note in caplog.messages)


def test_so_is_one_of_a_function_once(caplog):
    tf.random.set_seed(1)
    function = tf.function(lambda: tf.random.uniform([2], seed=3))
    with caplog.at_level(logging.WARNING, "amanda_tensorflow"):
        for where in FORWARD:
            with amanda.apply(Record(at=where)):
                function()
    (note,) = caplog.messages
    assert "random streams begin anew" in note
    assert "random_uniform/RandomUniform" in note


def test_what_holds_state_and_waits_for_instrumented_effects_is_refused_by_name():
    with tf.Graph().as_default(), v1.Session() as session:
        count = v1.get_variable("count", initializer=0)
        session.run(count.initializer)
        with tf.control_dependencies([count.assign_add(1)]):
            queue = v1.raw_ops.FIFOQueueV2(component_types=[tf.int32], name="mine")
        size = v1.raw_ops.QueueSizeV2(handle=queue) + 1
        with amanda.apply(Record()), pytest.raises(amanda.UnsupportedError, match="mine"):
            session.run(size)
        assert session.run(count) == 0
        assert session.run(size) == 1


def test_a_routine_replaces_what_a_random_operator_takes():
    with tf.Graph().as_default(), v1.Session() as session:
        logits = tf.math.log(data())
        drawn = v1.multinomial([logits], 50)
        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(
                lambda x: np.array([[-99.0, 0.0, -99.0]], "float32"), inputs=[0]
            ),
            ops=["Multinomial"],
        )
        with amanda.apply(tool):
            assert (session.run(drawn) == 1).all()
        assert not (session.run(drawn) == 1).all()


def test_a_routine_that_would_replace_what_is_fed_to_one_is_refused():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [3])
        shuffled = tf.random.shuffle(x)
        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda x: x * 2.0), ops=["RandomShuffle"]
        )
        with amanda.apply(tool), pytest.raises(amanda.RoutineError, match="fed"):
            session.run(shuffled, {x: [1.0, 2.0, 3.0]})


def test_input_queues_of_a_monitored_session_are_shared():
    def run(tool):
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            names = v1.train.string_input_producer(["a", "b", "c"], shuffle=False)
            batch = v1.train.batch([names.dequeue()], 2)
            with v1.train.MonitoredSession() as session:
                found = [values(session.run(batch))]
                with amanda.apply(tool) if tool else contextlib.nullcontext():
                    found += [values(session.run(batch)) for _ in range(3)]
                return [*found, values(session.run(batch))]

    tool = Record()
    assert run(tool) == run(None)
    assert tool.ran


def test_a_pure_routine_replaces_what_is_fed_to_a_random_operator():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [3])
        shuffled = tf.random.shuffle(x)
        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda x: x * 2.0, pure=True), ops=["RandomShuffle"]
        )
        with amanda.apply(tool):
            drawn = session.run(shuffled, {x: [1.0, 2.0, 3.0]})
    assert sorted(drawn) == [2.0, 4.0, 6.0]


def test_a_routine_before_a_conditional_runs_before_those_in_it():
    with tf.Graph().as_default(), v1.Session() as session:
        drawn = in_a_branch_with_an_argument()
        tool, seen = amanda.Tool(), []
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(
                lambda *given, kind: seen.append(kind), kind=ctx.op.type
            ),
            ops=["If", "StatelessIf", "RandomShuffle"],
        )
        with amanda.apply(tool):
            session.run(drawn)
    assert seen == ["If", "RandomShuffle"]


# What is created inside of a loop or function is created again in a copy of it


def counted(name, element):
    """How long a queue is that is created here, since FIFOQueue would create it outside."""
    queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shared_name=name or "", name="mine")
    with tf.control_dependencies([tf.raw_ops.QueueEnqueueV2(handle=queue, components=[element])]):
        return tf.raw_ops.QueueSizeV2(handle=queue)


def created_in_a_loop(name):
    return tf.while_loop(lambda i, n: i < 2, lambda i, n: (i + 1, counted(name, i + n)), [0, 0])[1]


def created_in_a_function(name):
    return tf.function(lambda i: counted(name, i))(tf.constant(1) + 1)


def created_in_a_branch(name):
    taken = v1.placeholder_with_default(True, [])
    return tf.cond(taken, lambda: created_in_a_function(name), lambda: 0)


def table_in_a_loop(name):
    def step(i, n):
        table = tf.raw_ops.MutableHashTableV2(
            key_dtype=tf.int32,
            value_dtype=tf.int32,
            shared_name=name or "",
            use_node_name_sharing=True,
        )
        key = n + i
        put = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=[key], values=[1])
        with tf.control_dependencies([put]):
            return i + 1, tf.cast(tf.raw_ops.LookupTableSizeV2(table_handle=table), tf.int32)

    return tf.while_loop(lambda i, n: i < 2, step, [0, 5])[1]


CREATED = [created_in_a_loop, created_in_a_function, created_in_a_branch]


@pytest.mark.parametrize("created", CREATED)
def test_what_is_created_inside_is_refused_by_name_before_it_runs(created, control_flow):
    with tf.Graph().as_default(), v1.Session() as session:
        size = created(None)
        first = session.run(size)
        with (
            amanda.apply(Record()),
            pytest.raises(amanda.UnsupportedError, match=r"mine.*shared_name"),
        ):
            session.run(size)
        with amanda.apply(Record("Conv2D")):
            assert session.run(size) == 2 * first
        assert session.run(size) == 3 * first


@pytest.mark.parametrize("created", [*CREATED, table_in_a_loop])
def test_unless_it_has_a_name_to_share_it_by(created, control_flow):
    def program():
        return [], [created("ours")]

    assert plain_then_watched(program, "insert_before_op") == plain_then_watched(program)


def test_so_has_what_is_kept_under_the_name_of_its_node():
    v1.disable_control_flow_v2()
    try:
        found = plain_then_watched(lambda: ([], [table_in_a_loop(None)]), "insert_before_op")
        assert found == plain_then_watched(lambda: ([], [table_in_a_loop(None)]))
    finally:
        v1.enable_control_flow_v2()
