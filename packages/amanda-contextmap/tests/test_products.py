"""What tools that change factors are told of the operators of all maps."""

import re

from amanda_contextmap import Factor, lookups, packed, products, wholes
from amanda_contextmap.schema import parameters
from amanda_contextmap.tensorflow import context_map as tensorflow_map
from amanda_contextmap.torch import context_map as torch_map


def test_factors_are_inputs_that_onnx_names():
    onnx = {type: factors for type, factors in products().items() if "::" not in type}
    assert {"Conv", "Gemm", "MatMul", "Attention", "LSTM"} <= onnx.keys()
    unknown = {type: factors.keys() - parameters(type).keys() for type, factors in onnx.items()}
    assert {type for type, roles in unknown.items() if roles} == set()


def test_each_matrix_of_a_product_has_channels_of_the_output_where_it_is_the_parameter():
    for type in ("Gemm", "MatMul"):
        assert all(factor.channel is not None for factor in products()[type].values())


def test_what_onnx_lacks_is_told_under_the_name_that_tools_see():
    first, second = Factor(channel=-2, summed=-1), Factor(channel=-1, summed=-2)
    for type in ("torch::baddbmm", "torch::baddbmm_"):
        assert products()[type] == {"batch1": first, "batch2": second}
    assert products()["torch::_grouped_mm"] == {"self": first, "mat2": second}


def test_what_computes_some_types_as_one_is_told_with_a_way_out():
    assert "set_fastpath_enabled" in wholes(["Gelu"])["torch::_transformer_encoder_layer_fwd"]
    assert wholes(["Softmax"]).keys() == {
        "torch::_transformer_encoder_layer_fwd",
        "torch::_native_multi_head_attention",
    }
    assert {type.partition("::")[0] for type in wholes(["LSTM"])} == {"torch", "tensorflow"}
    assert wholes(["Conv"]) == {}


def test_wholes_compute_types_that_the_maps_know():
    known = torch_map.types() | tensorflow_map.types()
    told = {**torch_map.wholes, **tensorflow_map.wholes}
    assert {type for whole in told.values() for type in whole.types} <= known
    assert all(re.match("(make|run|write) ", whole.way_out) for whole in told.values())


def test_packed_weights_are_told_of_types_that_multiply():
    assert {"torch::quantized::linear_dynamic", "torch::_weight_int8pack_mm"} <= {*packed(["Gemm"])}
    assert packed(["LSTM"]) == [
        "torch::quantized_lstm",
        "torch::quantized::quantized_lstm_cell_dynamic",
    ]
    assert {type for types in torch_map.packed.values() for type in types} <= products().keys()


def test_lookups_of_all_maps_are_told_under_the_names_that_tools_see():
    assert {"Gather", "torch::embedding_bag", "tensorflow::ResourceGather"} <= {*lookups()}
